"""Settings of the tokenizers that a dataset may have."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from difftransformer.config.base import Settings, setting
from difftransformer.errors import ConfigError

VOCABULARY_MULTIPLE = 64
"""Vocabularies are padded to a multiple of this; cl100k_base gives the paper's 100288."""


class BpeTokenizer(Settings):
    """Byte-level BPE trained on the training split."""

    kind: Literal["bpe"] = setting(meaning="Discriminator of the kinds of tokenizer.")
    vocab_size: int = setting(
        4096,
        meaning="Size of the vocabulary, <|endoftext|> (id 0) included.",
        unit="tokens",
        ge=257,
        le=2**24,
    )
    sample_bytes: int = setting(
        16_000_000,
        meaning="Text the merges are learned from: the training split where it is no more, else a "
        "sample of it. Of files it is drawn over all of their documents, each up to the same "
        "number of bytes: a thousandth of this or more, and all of it for a single document.",
        unit="bytes",
        gt=0,
    )


class TiktokenTokenizer(Settings):
    """An encoding of the tiktoken package."""

    kind: Literal["tiktoken"] = setting(meaning="Discriminator of the kinds of tokenizer.")
    name: Literal["gpt2", "r50k_base", "p50k_base", "cl100k_base"] = setting(
        "cl100k_base", meaning="Name of the encoding.", source="Differential Transformer, 3.1"
    )


class HuggingFaceTokenizer(Settings):
    """Any fast tokenizer of the Hugging Face hub, or of a local folder."""

    kind: Literal["huggingface"] = setting(meaning="Discriminator of the kinds of tokenizer.")
    name: str = setting(meaning="Name on the hub (owner/name) or a local folder.", min_length=1)
    revision: str | None = setting(
        None, meaning="Commit or tag; required on the hub, unused for a local folder."
    )
    eos_token: str | None = setting(
        None, meaning="Token that ends a document; None: the end-of-text token it declares."
    )
    of_model: bool = setting(
        False,
        meaning="Whether the model beside it reads the ids, which then must have a row for each; "
        "true in the datasets of `pretrained` and of pretrained runs.",
    )

    @property
    def files(self) -> list[Path]:
        """What a tokenizer may consist of in the local folder; nothing for a name on the hub."""
        suffixes = {".json", ".txt", ".model"}
        return sorted(path for path in Path(self.name).glob("*") if path.suffix in suffixes)


class NoTokenizer(Settings):
    """For generated rows, whose tokens are numbers from the start; they get words by formula."""

    kind: Literal["none"] = setting(meaning="Discriminator of the kinds of tokenizer.")


TokenizerConfig = Annotated[
    BpeTokenizer | TiktokenTokenizer | HuggingFaceTokenizer | NoTokenizer,
    Field(discriminator="kind"),
]


def vocabulary(vocab_size: Any, ids: int, dataset: str, location: str) -> Any:
    """Return a model's vocabulary size: as set, else the dataset's number of token ids, padded.

    Args:
        vocab_size: Setting of the model, not yet checked; None: it was not.
        ids: How many token ids the dataset has.
        dataset: Its name, for the message.
        location: Where ``vocab_size`` was set, for the message.

    Raises:
        ConfigError: There are more ids.
    """
    if vocab_size is None:
        return -(-ids // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    if isinstance(vocab_size, int) and vocab_size < ids:
        raise ConfigError(
            f"{location}: model.vocab_size: {vocab_size} is less than the {ids} token ids of "
            f"dataset {dataset}; raise it, or leave it out"
        )
    return vocab_size
