"""A tokenised dataset on disk: memory-mapped shards described by a manifest.

A shard is a flat little-endian array of token ids. Text shards hold whole documents, each closed by
the end-of-text token, with ``<shard>.documents.npy`` giving the int64 end offset of each document;
row shards hold rows of ``row_length`` tokens and need no offsets.
"""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from difftransformer.config.base import Settings, setting
from difftransformer.config.data import RecallConfig
from difftransformer.errors import DataError

MANIFEST = "manifest.json"
SPLITS = ("train", "validation")

Tokens = NDArray[np.integer[Any]]


class ShardEntry(Settings):
    """One file of tokens."""

    file: str = setting(meaning="File name beside the manifest.")
    tokens: int = setting(meaning="Number of tokens.", unit="tokens", gt=0)
    documents: int = setting(meaning="Number of documents or rows.", gt=0)
    sha256: str = setting(meaning="Digest of the file.")
    offsets_file: str | None = setting(None, meaning="File of the documents' end offsets.")
    offsets_sha256: str | None = setting(None, meaning="Digest of the offsets file.")


class SplitEntry(Settings):
    """All shards of a split."""

    tokens: int = setting(meaning="Number of tokens.", unit="tokens", gt=0)
    documents: int = setting(meaning="Number of documents or rows.", gt=0)
    shards: list[ShardEntry] = setting(meaning="Shards in order.", min_length=1)


class TokenizerEntry(Settings):
    """What made the token ids."""

    kind: Literal["bpe", "tiktoken", "huggingface", "words", "none"] = setting(
        meaning="Kind of tokenizer; words: those of generated rows."
    )
    sha256: str | None = setting(None, meaning="Digest of tokenizer.json.")
    eos_id: int | None = setting(None, meaning="Token that ends a document.")


class SourceEntry(Settings):
    """What a source contributed."""

    kind: str = setting(meaning="builtin, files or hub.")
    origin: str = setting(meaning="Where the text came from, with its version.")
    share: float = setting(meaning="Achieved share of the training tokens.")
    tokens: dict[str, int] = setting(meaning="Tokens in each split.", unit="tokens")
    documents: dict[str, int] = setting(meaning="Documents in each split.")
    licences: dict[str, int] = setting(meaning="Documents under each licence.")


class Manifest(Settings):
    """Description of a dataset; written last, so its presence means the dataset is whole."""

    format: Literal[1] = setting(1, meaning="Version of this layout.")
    vocab_size: int = setting(meaning="Every token id is below this.", unit="tokens", gt=0)
    dtype: Literal["uint16", "uint32"] = setting(meaning="Type of a token in the shards.")
    tokenizer: TokenizerEntry = setting(meaning="What made the token ids.")
    row_length: int | None = setting(None, meaning="Tokens in a row of generated rows.")
    answer_positions: list[int] | None = setting(
        None, meaning="Positions in a row's targets, tokens[1:], that are answers."
    )
    recall: RecallConfig | None = setting(None, meaning="Settings of generated recall rows.")
    splits: dict[str, SplitEntry] = setting(meaning="Tokens by split.")
    sources: dict[str, SourceEntry] = setting(meaning="What each source contributed.")
    digest: str = setting("", meaning="Hash of the content, free of paths and names of sources.")

    def content_digest(self) -> str:
        """SHA-256 of everything that decides what a model sees."""
        content = self.model_dump(mode="json", exclude={"sources", "digest"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class TokenView:
    """The shards of a split as one read-only array, nothing loaded until it is indexed."""

    def __init__(self, shards: list[Tokens]) -> None:
        self._shards = shards
        self._starts = [0, *np.cumsum([len(shard) for shard in shards]).tolist()]

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise IndexError("a TokenView has slices of step 1 only")
            return self._range(start, max(start, stop))
        return self._range(*self._bounds(index))[0]

    def _bounds(self, index: int) -> tuple[int, int]:
        start = index + len(self) if index < 0 else index
        if not 0 <= start < len(self):
            raise IndexError(f"token {index} of {len(self)}")
        return start, start + 1

    def _range(self, start: int, stop: int) -> Tokens:
        """Tokens start..stop-1: a view inside one shard, a copy across shards."""
        first = min(bisect_right(self._starts, start) - 1, len(self._shards) - 1)
        offset = self._starts[first]
        if stop <= self._starts[first + 1]:
            return self._shards[first][start - offset : stop - offset]
        parts = []
        for shard, begin in zip(self._shards[first:], self._starts[first:-1], strict=True):
            if begin >= stop:
                break
            parts.append(shard[max(0, start - begin) : stop - begin])
        return np.concatenate(parts)

    def chunks(self, size: int, overlap: int = 0) -> Iterator[Tokens]:
        """Consecutive pieces of `size` tokens, each continued by `overlap` tokens of the next."""
        for start in range(0, max(1, len(self) - overlap), size):
            yield self[start : start + size + overlap]


class PackedSplit:
    """The tokens of one split.

    Attributes:
        tokens: All tokens in order, as one view.
        entry: What the manifest says of the split.
        row_length: Tokens in a row, or None for running text.
    """

    def __init__(self, folder: Path, manifest: Manifest, split: str) -> None:
        self.entry = manifest.splits[split]
        self.row_length = manifest.row_length
        self._folder = folder
        dtype = np.dtype(manifest.dtype).newbyteorder("<")
        self.tokens = TokenView(
            [
                np.memmap(folder / shard.file, dtype=dtype, mode="r", shape=(shard.tokens,))
                for shard in self.entry.shards
            ]
        )

    def document_ends(self) -> NDArray[np.int64]:
        """End offset in `tokens` of each document (or row), [documents]."""
        if self.row_length is not None:
            return np.arange(1, self.entry.documents + 1, dtype=np.int64) * self.row_length
        ends, start = [], 0
        for shard in self.entry.shards:
            assert shard.offsets_file is not None
            ends.append(np.load(self._folder / shard.offsets_file, allow_pickle=False) + start)
            start += shard.tokens
        return np.concatenate(ends).astype(np.int64)


class PackedDataset:
    """A dataset folder whose manifest and file sizes have been checked.

    Attributes:
        folder: Where it lies.
        manifest: Its description.
        digest: Hash of its content, independent of where it lies.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self.digest = manifest.digest

    @classmethod
    def open(cls, folder: Path, *, verify: bool = False) -> "PackedDataset":
        """Open a dataset folder; with `verify` every file is read and its digest compared.

        Raises:
            DataError: The manifest or a shard is missing, truncated or changed; names the file.
        """
        folder = Path(folder)
        manifest = _read_manifest(folder / MANIFEST)
        for split in manifest.splits.values():
            for shard in split.shards:
                _check_shard(folder, shard, np.dtype(manifest.dtype).itemsize, verify=verify)
        return cls(folder, manifest)

    def split(self, name: str) -> PackedSplit:
        """One split by name; DataError if the dataset has none of that name."""
        if name not in self.manifest.splits:
            raise DataError(
                f"{self.folder}: no split {name!r}; it has {', '.join(self.manifest.splits)}"
            )
        return PackedSplit(self.folder, self.manifest, name)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_manifest(path: Path) -> Manifest:
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; build the dataset with `tokenise`") from None
    except (ValidationError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path}: not a dataset manifest ({reason}); {_REBUILD}") from None
    if manifest.digest != manifest.content_digest():
        raise DataError(f"{path}: changed since it was written; {_REBUILD}")
    return manifest


_REBUILD = "delete manifest.json and rebuild with `tokenise`"


def _check_shard(folder: Path, shard: ShardEntry, itemsize: int, *, verify: bool) -> None:
    path = folder / shard.file
    if not path.is_file():
        raise DataError(f"{path}: shard is missing; {_REBUILD}")
    size = path.stat().st_size
    if size != shard.tokens * itemsize:
        raise DataError(
            f"{path}: {size} bytes, the manifest says {shard.tokens * itemsize}; {_REBUILD}"
        )
    if shard.offsets_file is not None and not (folder / shard.offsets_file).is_file():
        raise DataError(f"{folder / shard.offsets_file}: offsets are missing; {_REBUILD}")
    if verify:
        _check_digest(path, shard.sha256)
        if shard.offsets_file is not None and shard.offsets_sha256 is not None:
            _check_digest(folder / shard.offsets_file, shard.offsets_sha256)


def _check_digest(path: Path, expected: str) -> None:
    if file_sha256(path) != expected:
        raise DataError(f"{path}: content differs from its recorded sha256; {_REBUILD}")
