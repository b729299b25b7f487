"""Settings of a dataset: its sources of text, and how they are mixed, split and tokenized."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from difftransformer.config.base import Name, Settings, setting
from difftransformer.config.folders import files_below
from difftransformer.config.generated_rows import (
    GENERATED,
    ClassificationConfig,
    GeneratedRows,
    RecallConfig,
)
from difftransformer.config.tokenizers import (
    BpeTokenizer,
    NoTokenizer,
    TiktokenTokenizer,
    TokenizerConfig,
)
from difftransformer.errors import ConfigError

TIKTOKEN_VOCABULARIES = {
    "gpt2": 50257,
    "r50k_base": 50257,
    "p50k_base": 50281,
    "cl100k_base": 100277,
}


class SplitSettings(Settings):
    """Settings that say how a source of files is split into training and validation text."""

    split_by: Literal["document", "package"] = setting(
        "document",
        meaning="What is held out as one: a document, by the SHA-256 of its text, or a package, by "
        "that of its name, so that files that copy from each other stay on one side. A package is "
        "the first folder, or the top-level module, of the standard library, and the first folder "
        "below the fixed part of a glob; a document without one stands for itself.",
    )


class BuiltinSource(SplitSettings):
    """Source without a download: the Python standard library, or generated rows or questions."""

    kind: Literal["builtin"] = setting(meaning="Discriminator of the kinds of source.")
    name: Literal["stdlib_text", "recall", "classification", "arithmetic"] = setting(
        meaning="stdlib_text: the .py files of the running Python's standard library; "
        "recall, classification: generated rows of key-value retrieval or of labeled items, set "
        "by the dataset's settings of that name; arithmetic: generated questions with worked "
        "answers, without end."
    )
    weight: float = setting(1.0, meaning="Share of tokens, relative to the other sources.", gt=0)
    include_tests: bool = setting(
        False, meaning="Whether stdlib_text also takes the library's test folders."
    )
    max_bytes: int | None = setting(
        None, meaning="Most text taken from stdlib_text; None takes all.", unit="bytes", gt=0
    )
    style: Literal["worked", "reasoned"] = setting(
        "worked",
        meaning="How arithmetic is answered: by its equations, or by a longer chain of thought "
        "that names results and checks some of them.",
    )
    generator_seed: int = setting(0, meaning="Seed of the questions of arithmetic.", ge=0)


class FilesSource(SplitSettings):
    """Text files given by globs: .txt, .md, .jsonl, .ndjson (plain, .gz or .zst) and .parquet."""

    kind: Literal["files"] = setting(meaning="Discriminator of the kinds of source.")
    globs: list[str] = setting(
        meaning="Globs of the files; relative ones start at the working directory. A folder, "
        "named or matched by a glob, stands for all files below it that can be read, hidden files "
        "and folders left out. Links are followed within the folder that a glob starts at; one "
        "that leads out of it is refused, unless it is named here itself.",
        min_length=1,
    )
    validation: list[str] = setting(
        [], meaning="Globs of held-out files; with them nothing of `globs` is held out by hash."
    )
    text_field: str = setting("text", meaning="Field (.jsonl) or column (.parquet) with the text.")
    license: str = setting(meaning="License of the texts, as it shall stand in the manifest.")
    license_field: str | None = setting(
        None, meaning="Field with the license of a single document; one without it has `license`."
    )
    weight: float = setting(1.0, meaning="Share of tokens, relative to the other sources.", gt=0)


class HubSource(Settings):
    """Source that is a dataset of the Hugging Face Hub, or a local folder in the same layout."""

    kind: Literal["hub"] = setting(meaning="Discriminator of the kinds of source.")
    dataset: str = setting(meaning="Name on the hub (owner/name) or a local folder.", min_length=1)
    config: str | None = setting(None, meaning="Configuration of the dataset; None: its default.")
    split: str = setting("train", meaning="Split of the dataset to train on.")
    validation_split: str | None = setting(
        None, meaning="Split to validate on; None holds documents out by hash."
    )
    text_field: str = setting("text", meaning="Column with the text.")
    template: str | None = setting(
        None,
        meaning="Text made of several columns, in place of text_field: names of columns in braces, "
        "with [key] or [index] for what lies inside, as in {conversations[1][value]}.",
    )
    revision: str = setting(
        meaning="Commit or tag: hub datasets change, so it must be pinned.", min_length=1
    )
    license: str = setting(meaning="License of the texts, as it shall stand in the manifest.")
    weight: float = setting(1.0, meaning="Share of tokens, relative to the other sources.", gt=0)

    @property
    def files(self) -> list[Path]:
        """Paths of the files in the local folder; empty for a dataset on the hub."""
        return sorted(files_below(Path(self.dataset)))


SourceConfig = Annotated[BuiltinSource | FilesSource | HubSource, Field(discriminator="kind")]


class LengthUpsampling(Settings):
    """Upsampling of long documents, for training on long contexts.

    A training document of n tokens is kept with probability (min(n, L) / L)^power, and left out
    otherwise. Documents are never repeated within one pass over the corpus, since the second copy
    could be predicted by copying the first. With ``when_exhausted: repeat`` each pass draws anew.
    The validation split is not changed.
    """

    full_length: int = setting(
        meaning="L: documents of at least this many tokens are all kept; the length that is "
        "trained on.",
        unit="tokens",
        gt=0,
    )
    power: float = setting(
        1.0,
        meaning="0 keeps everything; 1 keeps a document in proportion to the share of a context "
        "that it can fill; more keeps little but documents of L tokens.",
        source="arXiv 2410.05258, section 3.3, says only 'up-sampled by sequence length'; the "
        "rule and 1 are ours",
        ge=0,
    )

    def keep_probability(self, tokens: int) -> float:
        """Return the probability that a document of ``tokens`` tokens is kept for training."""
        return float((min(tokens, self.full_length) / self.full_length) ** self.power)


class DatasetConfig(Settings):
    """A mixture of text sources with one tokenizer, split into training and validation."""

    sources: dict[Name, SourceConfig] = setting(
        meaning="Named sources; documents are interleaved so that tokens follow the weights.",
        min_length=1,
    )
    tokens: int | None = setting(
        None,
        meaning="Size of the training split; None takes every document once.",
        unit="tokens",
        gt=0,
        le=10**15,
    )
    when_exhausted: Literal["stop", "repeat"] = setting(
        "stop", meaning="A source that runs out before the budget: leave it out, or read it again."
    )
    validation_share: float = setting(
        0.02,
        meaning="Share of documents, or of packages, that are held out (a source's `split_by`); at "
        "least one of few.",
        gt=0,
        lt=1,
    )
    validation_tokens: int | None = setting(
        None,
        meaning="Size of the validation split before near_duplicates and max_overlap drop "
        "documents; None: validation_share of `tokens`, or every held-out document where "
        "`tokens` is None too. It is held in memory.",
        unit="tokens",
        gt=0,
    )
    max_document_tokens: int | None = setting(
        None,
        meaning="Longer documents are cut here, so that a small budget is not one book.",
        unit="tokens",
        gt=0,
    )
    max_validation_document_tokens: int | None = setting(
        None,
        meaning="Longer held-out documents are cut here instead, where it is less. Cut and not "
        "left out: every document still speaks, none for many, and the same number of tokens comes "
        "from more documents that are independent of each other.",
        unit="tokens",
        gt=0,
    )
    long_documents: Literal["cut", "split"] = setting(
        "cut",
        meaning="What becomes of longer documents: cut off, or split into windows of that many "
        "tokens. The first windows of all documents are read before the second ones, so that a "
        "small budget is not one book. A window counts as a document, in intervals, too.",
    )
    near_duplicates: float | None = setting(
        None,
        meaning="Held-out documents whose 5-grams of tokens have at least this Jaccard similarity "
        "(estimated by MinHash) with those of a training document, or of an earlier held-out one, "
        "are dropped; all are compared up to the length at which held-out documents are cut. "
        "Dropped from validation, so that what is trained on does not depend on what is held out. "
        "None keeps them.",
        source="0.8 in Lee et al. 2022, arXiv 2107.06499",
        gt=0,
        le=1,
    )
    max_overlap: float | None = setting(
        None,
        meaning="Largest share of validation tokens that lie in 32-grams which training holds: the "
        "documents with the largest shares are dropped until it is met. None keeps all; the share "
        "stands in the manifest all the same.",
        ge=0,
        le=1,
    )
    upsampling: LengthUpsampling | None = setting(
        None, meaning="Which documents training keeps, by their length; null: all of them."
    )
    tokenizer: TokenizerConfig = setting(meaning="How text becomes tokens.")
    shard_tokens: int = setting(
        2**23,
        meaning="A shard is closed by the document that fills it; an interrupted job "
        "continues after the last whole shard.",
        unit="tokens",
        gt=0,
    )
    recall: RecallConfig | None = setting(None, meaning="Rows of the builtin source `recall`.")
    classification: ClassificationConfig | None = setting(
        None, meaning="Rows of the builtin source `classification`."
    )
    seed: int = setting(0, meaning="Seed of generated rows, and of what upsampling keeps.", ge=0)

    @property
    def generated(self) -> GeneratedRows | None:
        """Settings of the dataset's generated rows; None for a dataset of text."""
        return self.recall if self.recall is not None else self.classification

    @property
    def vocab_size(self) -> int | None:
        """Size of the vocabulary, or None if it is only known from the tokenizer's file."""
        match self.tokenizer:
            case BpeTokenizer(vocab_size=size):
                return size
            case TiktokenTokenizer(name=name):
                return TIKTOKEN_VOCABULARIES[name]
            case NoTokenizer():
                assert self.generated is not None
                return self.generated.vocab_size
        return None

    def longest(self, split: str) -> int | None:
        """Return the maximum tokens of a document or window in a split; None: no limit."""
        return self.max_document_tokens if split == "train" else self.longest_held_out

    @property
    def longest_held_out(self) -> int | None:
        """Maximum number of tokens of a held-out document; None: no limit."""
        limits = (self.max_document_tokens, self.max_validation_document_tokens)
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def validation_budget(self) -> int | None:
        """Number of tokens of the validation split; None: all held-out documents."""
        if self.validation_tokens is not None or self.tokens is None:
            return self.validation_tokens
        return max(1, round(self.validation_share * self.tokens))

    @model_validator(mode="after")
    def _coherent(self) -> "DatasetConfig":
        builtin = {
            name: source.name
            for name, source in self.sources.items()
            if isinstance(source, BuiltinSource)
        }
        generated = [name for name, kind in builtin.items() if kind in GENERATED]
        if generated and len(self.sources) > 1:
            raise ValueError(f"source {generated[0]} is generated rows: it cannot be mixed")
        for kind in GENERATED:
            if (kind in builtin.values()) != (getattr(self, kind) is not None):
                raise ValueError(f"`{kind}` settings and a builtin source named {kind} go together")
        if bool(generated) != (self.tokenizer.kind == "none"):
            raise ValueError(
                f"tokenizer kind none is for the builtin sources {' and '.join(GENERATED)}, and "
                "only for them"
            )
        if generated and self.upsampling is not None:
            raise ValueError("upsampling is for documents: generated rows are all of one length")
        if self.long_documents == "split" and 1 in (self.longest("train"), self.longest_held_out):
            raise ValueError(
                "max_document_tokens: 1 leaves windows no text: raise it or set long_documents: cut"
            )
        endless = [name for name, kind in builtin.items() if kind in (*GENERATED, "arithmetic")]
        if self.tokens is None and (endless or self.when_exhausted == "repeat"):
            reason = f"source {endless[0]}" if endless else "when_exhausted: repeat"
            raise ValueError(f"{reason} without `tokens` would never end: set a budget of tokens")
        return self


def require_same_text(changes: Mapping[str, Any], location: str, other_text: bool) -> None:
    """Check that changes to a base dataset keep its token ids and its held-out documents.

    Args:
        changes: Settings of the derived dataset that differ from the base.
        location: Key path of the derived dataset, for error messages.
        other_text: Whether the derived dataset has sources of its own. It may then change how they
            are split, since it cannot train on the held-out documents of the base.

    Raises:
        ConfigError: A key must be as in the base; the message begins with ``location``.
    """
    sources = changes.get("sources")
    split = [
        f"sources.{name}.{key}"
        for name, source in (sources.items() if isinstance(sources, Mapping) else ())
        for key in SplitSettings.model_fields
        if isinstance(source, Mapping) and key in source
    ]
    changed = [key for key in ("tokenizer", "validation_share") if key in changes] + split
    for key in changed:
        if key == "tokenizer" or not other_text:
            raise ConfigError(
                f"{location}: {key}: a dataset with a base has the base's, so that token ids and "
                f"held-out documents stay the same; remove it, or change it in the base"
            )
