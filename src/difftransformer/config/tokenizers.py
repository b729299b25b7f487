"""Settings of the tokenizers that a dataset can use."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from difftransformer.config.base import Settings, setting
from difftransformer.errors import ConfigError

VOCABULARY_MULTIPLE = 64
"""Multiple to which vocabulary sizes are padded; cl100k_base is padded to the paper's 100288."""


class BpeTokenizer(Settings):
    """Settings of a byte-level BPE tokenizer trained on the training split."""

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
    """Settings of a tokenizer that is an encoding of the tiktoken package."""

    kind: Literal["tiktoken"] = setting(meaning="Discriminator of the kinds of tokenizer.")
    name: Literal["gpt2", "r50k_base", "p50k_base", "cl100k_base"] = setting(
        "cl100k_base", meaning="Name of the encoding.", source="Differential Transformer, 3.1"
    )


class HuggingFaceTokenizer(Settings):
    """Settings of a fast tokenizer from the Hugging Face Hub or a local folder."""

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
        """Paths of the local files that the tokenizer may read; empty for a hub name."""
        suffixes = {".json", ".txt", ".model"}
        return sorted(path for path in Path(self.name).glob("*") if path.suffix in suffixes)


class NoTokenizer(Settings):
    """Setting of generated rows, which are made of token ids and need no tokenizer."""

    kind: Literal["none"] = setting(meaning="Discriminator of the kinds of tokenizer.")


TokenizerConfig = Annotated[
    BpeTokenizer | TiktokenTokenizer | HuggingFaceTokenizer | NoTokenizer,
    Field(discriminator="kind"),
]


def vocabulary(vocab_size: Any, ids: int, dataset: str, location: str) -> Any:
    """Return the vocabulary size of a model: as set, or else derived from its dataset.

    The derived size is the number of token ids, rounded up to a multiple of `VOCABULARY_MULTIPLE`.

    Args:
        vocab_size: The model's setting, not yet validated; None: not set.
        ids: Number of token ids of the dataset.
        dataset: Name of the dataset, for error messages.
        location: Place that set ``vocab_size``, for error messages.

    Raises:
        ConfigError: ``vocab_size`` is smaller than ``ids``.
    """
    if vocab_size is None:
        return -(-ids // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    if isinstance(vocab_size, int) and vocab_size < ids:
        raise ConfigError(
            f"{location}: model.vocab_size: {vocab_size} is less than the {ids} token ids of "
            f"dataset {dataset}; raise it, or leave it out"
        )
    return vocab_size
