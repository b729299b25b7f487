"""A tokenized dataset on disk: memory-mapped shards described by a manifest.

    manifest.json, tokenizer.json, tokenizer_config.json
    shards/train-00000.bin, shards/train-00000.documents.npy, ...

A shard is a flat little-endian array of token ids. Text shards have complete documents, each ended
by the end-of-text token, and ``<shard>.documents.npy`` with the int64 end offset of each document;
row shards have rows of ``row_length`` tokens and no offsets.
"""

import time
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, model_validator

from difftransformer.config.base import Settings, setting
from difftransformer.config.generated_rows import ClassificationConfig, RecallConfig
from difftransformer.config.validation import validate
from difftransformer.data.digest_cache import cache_sha256, cached_sha256
from difftransformer.data.token_view import REBUILD, Tokens, TokenView
from difftransformer.errors import ConfigError, DataError
from difftransformer.provenance.checksums import file_sha256, json_digest
from difftransformer.provenance.layout import MANIFEST, SHARDS

TOKENIZER = "tokenizer.json"
SPLITS = ("train", "validation")


def _plain_file_name(name: str) -> str:
    if Path(name).name != name or not name.strip(".") or not name.isprintable():
        raise ValueError(
            f"{name!r} is not a plain file name: files are in {SHARDS}/ next to the manifest"
        )
    return name


FileName = Annotated[str, AfterValidator(_plain_file_name)]


class ShardEntry(Settings):
    """Manifest entry of a shard: file, number of tokens, checksum."""

    file: FileName = setting(meaning="File name in shards/ beside the manifest.")
    tokens: int = setting(meaning="Number of tokens.", unit="tokens", gt=0)
    documents: int = setting(meaning="Number of documents or rows.", gt=0)
    sha256: str = setting(meaning="Digest of the file.")
    offsets_file: FileName | None = setting(None, meaning="File of the documents' end offsets.")
    offsets_sha256: str | None = setting(None, meaning="Digest of the offsets file.")

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of the shard's files by file name."""
        digests = {self.file: self.sha256}
        if self.offsets_file is not None and self.offsets_sha256 is not None:
            digests[self.offsets_file] = self.offsets_sha256
        return digests


class SplitEntry(Settings):
    """Manifest entry of a split, with all of its shards."""

    tokens: int = setting(meaning="Number of tokens.", unit="tokens", gt=0)
    documents: int = setting(meaning="Number of documents or rows.", gt=0)
    shards: list[ShardEntry] = setting(meaning="Shards in order.", min_length=1)

    @model_validator(mode="after")
    def _sums(self) -> Self:
        for name in ("tokens", "documents"):
            value, total = getattr(self, name), sum(getattr(shard, name) for shard in self.shards)
            if value != total:
                raise ValueError(f"{name} is {value}, its shards have {total}")
        return self


class TokenizerEntry(Settings):
    """Manifest entry of the dataset's tokenizer."""

    kind: Literal["bpe", "tiktoken", "huggingface", "words", "none"] = setting(
        meaning="Kind of tokenizer; words: those of generated rows."
    )
    sha256: str | None = setting(None, meaning="Digest of tokenizer.json.")
    eos_id: int | None = setting(None, meaning="Token that ends a document.")


class Truncated(Settings):
    """Numbers of documents and tokens that were truncated."""

    documents: int = setting(meaning="Documents.")
    tokens: int = setting(
        meaning="Tokens that were truncated, estimated from the text before them.", unit="tokens"
    )


class SourceEntry(Settings):
    """Manifest entry of a source, with its tokens and documents."""

    kind: str = setting(meaning="builtin, files or hub.")
    origin: str = setting(meaning="Where the text came from, with its version.")
    share: float = setting(meaning="Achieved share of the training tokens.")
    tokens: dict[str, int] = setting(meaning="Tokens in each split.", unit="tokens")
    documents: dict[str, int] = setting(meaning="Documents in each split.")
    licenses: dict[str, int] = setting(meaning="Documents under each license.")
    truncated: dict[str, Truncated] = setting(
        {}, meaning="Truncated by max_document_tokens, by split; split documents are not truncated."
    )
    blank: int = setting(0, meaning="Documents without text (blank or null) that were skipped.")


class Dropped(Settings):
    """Numbers of documents dropped from the validation split."""

    documents: int = setting(meaning="Documents.")
    tokens: int = setting(meaning="Tokens.", unit="tokens")


class TrainTestOverlap(Settings):
    """Amount of validation text that also occurs in the training text (train/test overlap)."""

    n: int = setting(meaning="Length of the n-grams.", unit="tokens")
    share: float = setting(
        meaning="Share of the validation tokens that lie in an n-gram of their document which "
        "training holds verbatim."
    )
    share_before_dropping: float = setting(meaning="The same of all that was held out.")
    near_duplicates: Dropped = setting(meaning="Dropped as near-duplicates, of each other too.")
    overlapping: Dropped = setting(
        meaning="Dropped for their overlap with training, for `max_overlap`."
    )


class Manifest(Settings):
    """Description of a packed dataset.

    It is written last, so its presence means that the dataset is complete.
    """

    format: Literal[1] = setting(1, meaning="Version of this layout.")
    vocab_size: int = setting(meaning="Every token id is below this.", unit="tokens", gt=0)
    dtype: Literal["uint16", "uint32"] = setting(meaning="Type of a token in the shards.")
    tokenizer: TokenizerEntry = setting(meaning="The tokenizer.")
    row_length: int | None = setting(None, meaning="Tokens in a row of generated rows.", gt=1)
    answer_positions: list[int] | None = setting(
        None, meaning="Positions in a row's targets, tokens[1:], that are answers."
    )
    recall: RecallConfig | None = setting(None, meaning="Settings of generated recall rows.")
    classification: ClassificationConfig | None = setting(
        None, meaning="Settings of generated rows of labeled items."
    )
    splits: dict[str, SplitEntry] = setting(meaning="Tokens by split.")
    sources: dict[str, SourceEntry] = setting(meaning="What each source contributed.")
    overlap: TrainTestOverlap | None = setting(
        None, meaning="Train/test overlap of the validation text; null for generated rows."
    )
    digest: str = setting("", meaning="Hash of the content, free of paths and names of sources.")

    @model_validator(mode="after")
    def _rows(self) -> Self:
        length = self.row_length
        if length is None:
            if self.answer_positions is not None:
                raise ValueError("answer_positions are for rows: give row_length too")
            return self
        for name, split in self.splits.items():
            if split.tokens != split.documents * length:
                raise ValueError(
                    f"split {name} has {split.tokens} tokens, {split.documents} rows of {length} "
                    f"have {split.documents * length}"
                )
        answers = self.answer_positions or []
        if not all(0 <= position < length - 1 for position in answers):
            raise ValueError(f"answer_positions must lie below {length - 1}, got {answers[:20]}")
        return self

    def content_digest(self) -> str:
        """Return the SHA-256 of everything in the dataset that affects a model's input."""
        return json_digest(self.model_dump(mode="json", exclude={"sources", "overlap", "digest"}))


class PackedSplit:
    """The tokens of one split of a packed dataset.

    Attributes:
        tokens: All tokens in order, as one view.
        entry: Manifest entry of the split.
        row_length: Tokens in a row, or None for running text.
    """

    def __init__(self, folder: Path, manifest: Manifest, split: str) -> None:
        self.entry = manifest.splits[split]
        self.row_length = manifest.row_length
        self._folder = folder / SHARDS
        dtype = np.dtype(manifest.dtype).newbyteorder("<")
        shards: list[Tokens] = [
            # A plain array over the memmap, whose own slicing takes some 20 us in Python.
            np.asarray(
                np.memmap(self._folder / shard.file, dtype=dtype, mode="r", shape=(shard.tokens,))
            )
            for shard in self.entry.shards
        ]
        self.tokens = TokenView(shards, manifest.vocab_size)

    def document_ends(self) -> NDArray[np.int64]:
        """Return the end offset in `tokens` of each document (or row), [documents].

        Raises:
            DataError: An offsets file is missing, damaged, or does not fit its shard.
        """
        if self.row_length is not None:
            return np.arange(1, self.entry.documents + 1, dtype=np.int64) * self.row_length
        ends, start = [], 0
        for shard in self.entry.shards:
            ends.append(_read_offsets(self._folder, shard) + start)
            start += shard.tokens
        return np.concatenate(ends)


class PackedDataset:
    """An opened dataset folder.

    Its manifest and file sizes are checked when it is opened, its digests when a split is read.

    Attributes:
        folder: The dataset's folder.
        manifest: Description of the dataset.
        digest: Hash of the dataset's content, independent of its path.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest, self.digest = folder, manifest, manifest.digest
        self._verified: set[str] = set()

    @classmethod
    def open(cls, folder: Path) -> "PackedDataset":
        """Open a dataset folder and return the dataset.

        Raises:
            DataError: The manifest or a shard is missing, truncated or changed, or the tokenizer
                is another one; the message names the file.
        """
        folder = Path(folder)
        manifest = read_manifest(folder / MANIFEST)
        itemsize = np.dtype(manifest.dtype).itemsize
        for split in manifest.splits.values():
            for shard in split.shards:
                _check_shard(folder / SHARDS, shard, itemsize)
        expected = manifest.tokenizer.sha256
        if expected is not None and (folder / TOKENIZER).is_file():
            _check_digest(folder / TOKENIZER, expected)
        return cls(folder, manifest)

    def split(self, name: str) -> PackedSplit:
        """Return a split by name after checking the digests of its files.

        Digests of large files are checked once a day.

        Raises:
            DataError: There is no such split, or a shard changed since it was written.
        """
        if name not in self.manifest.splits:
            raise DataError(
                f"{self.folder}: no split {name!r}; it has {', '.join(self.manifest.splits)}"
            )
        if name not in self._verified:
            for shard in self.manifest.splits[name].shards:
                for file, sha256 in shard.digests.items():
                    _check_digest(self.folder / SHARDS / file, sha256)
            self._verified.add(name)
        return PackedSplit(self.folder, self.manifest, name)


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of a dataset, read from its file.

    Raises:
        DataError: The manifest is missing, damaged or changed.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; build the dataset with `tokenize`") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); {REBUILD}") from None
    try:
        manifest = validate(Manifest, content, f"{path}: not a dataset manifest")
    except ConfigError as error:
        raise DataError(f"{error}; {REBUILD}") from None
    if manifest.digest != manifest.content_digest():
        raise DataError(f"{path}: changed since it was written; {REBUILD}")
    return manifest


def _check_shard(folder: Path, shard: ShardEntry, itemsize: int) -> None:
    path = folder / shard.file
    if not path.is_file():
        raise DataError(f"{path}: shard is missing; {REBUILD}")
    size = path.stat().st_size
    if size != shard.tokens * itemsize:
        raise DataError(
            f"{path}: has {size} bytes, not {shard.tokens * itemsize} as in the manifest; {REBUILD}"
        )
    if shard.offsets_file is not None and not (folder / shard.offsets_file).is_file():
        raise DataError(f"{folder / shard.offsets_file}: offsets are missing; {REBUILD}")


def _read_offsets(folder: Path, shard: ShardEntry) -> NDArray[np.int64]:
    """Return the end offsets of a shard's documents, [documents], ascending to its tokens."""
    if shard.offsets_file is None:
        raise DataError(f"{folder / shard.file}: the manifest has no offsets for it; {REBUILD}")
    path = folder / shard.offsets_file
    try:
        ends = np.load(path, allow_pickle=False)
        fits = ends.shape == (shard.documents,) and ends.dtype == np.int64
    except (OSError, ValueError, EOFError, AttributeError, SyntaxError) as error:
        raise DataError(f"{path}: cannot be read ({type(error).__name__}); {REBUILD}") from None
    if not fits or ends[0] <= 0 or ends[-1] != shard.tokens or (np.diff(ends) <= 0).any():
        raise DataError(
            f"{path}: must have {shard.documents} ascending offsets up to {shard.tokens}; {REBUILD}"
        )
    return np.asarray(ends)


def _check_digest(path: Path, expected: str) -> None:
    if cached_sha256(path) == expected:
        return
    started = time.time()
    if file_sha256(path) != expected:
        raise DataError(f"{path}: content differs from its recorded sha256; {REBUILD}")
    cache_sha256(path, expected, started)
