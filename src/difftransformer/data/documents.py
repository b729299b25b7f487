"""What every source of text yields: documents, each with the place behind it, in two splits."""

import hashlib
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, NamedTuple, Protocol

from difftransformer.config.data import DatasetConfig, SplitSettings


class Cursor(NamedTuple):
    """A place in a source.

    Attributes:
        repeat: How often the source was read through.
        unit: File in it.
        record: Record in the file.
        window: First window of the next document to be read, see `difftransformer.data.windows`.
    """

    repeat: int = 0
    unit: int = 0
    record: int = 0
    window: int = 0


class Document(NamedTuple):
    """A text, its license, the cursor just behind it, and what it is held out with.

    ``package`` is the name of a package that is held out as one; None: the text itself decides.
    """

    text: str
    license: str
    cursor: Cursor
    package: str | None = None


class Source(Protocol):
    """What every kind of source offers.

    Attributes:
        kind: Kind of its settings.
        weight: Share of tokens, relative to the other sources.
        origin: Where the text comes from, with its version.
        by_name: Whether documents come by the names of files, so that the first are no sample.
    """

    kind: str
    weight: float
    origin: str
    sorted_by_name: bool

    @property
    def has_validation(self) -> bool:
        """Whether it names held-out text itself, so that nothing is held out by hash."""

    def read(self, split: str, start: Cursor) -> Iterator[Document]:
        """Documents from a cursor on; `split` matters only with has_validation."""

    def identity(self) -> list[Any]:
        """Return what decides its documents, in JSON types; other work is not continued."""


def documents(
    source: Source, split: str, validation_share: float, start: Cursor | None = None
) -> Iterator[Document]:
    """Yield the documents of a split: blank ones left out, held-out ones kept apart by hash."""
    found = iter_split_with_blank(source, split, validation_share, start or Cursor())
    return (document for document in found if document.text.strip())


def iter_split_with_blank(
    source: Source, split: str, validation_share: float, start: Cursor
) -> Iterator[Document]:
    """Yield the documents of a split, and once for all splits those without text."""
    limit = 0.0 if source.has_validation else validation_hash_limit(source, validation_share)
    for document in source.read(split, start):
        if not document.text.strip():
            if source.has_validation or split == "train":
                yield document
        elif source.has_validation or (_hashed(document) < limit) == (split == "validation"):
            yield document


FEW = 200
"""Documents of which a share of some percent may well be none."""


def validation_hash_limit(source: Source, share: float) -> float:
    """Return the hash below which a document is held out.

    It is ``share`` of all hashes. Where a source has few documents, and that would hold out none of
    them or leave none to train on, it is what holds out the one with the smallest hash.
    """
    limit = share * _HASHES
    readable = (one for one in source.read("train", Cursor()) if one.text.strip())
    found = [_hashed(document) for document in islice(readable, FEW)]
    hashes = sorted(set(found))
    if len(found) == FEW or len(hashes) < 2:
        return limit
    return limit if hashes[0] < limit <= hashes[-1] else hashes[1]  # whole: a float would round


def in_validation(text: str, share: float) -> bool:
    """Whether a text belongs to validation: its SHA-256 decides, so copies stay together."""
    return _hash(text) < share * _HASHES


def empty_split_message(dataset: DatasetConfig, sources: Collection[str], split: str) -> str:
    """Say that sources have no document for a split, and what gives it some.

    Which split the only document falls to is up to its hash, so both say the same.
    """
    opened = [dataset.sources[name] for name in sources]
    packages = any(isinstance(one, SplitSettings) and one.split_by == "package" for one in opened)
    lacking, change = {
        "train": ("no text for training, every document is blank or held out", "lower"),
        "validation": ("no document is left to validate on", "raise"),
    }[split]
    two, cure = "two that differ", "split the text into files"
    if packages:
        two, cure = "two packages", "sort the files into folders, set split_by: document"
    return (
        f"sources {', '.join(sources)}: {lacking}: it takes {two}; {cure}, {change} "
        f"validation_share ({dataset.validation_share}), or name held-out files (`validation` "
        "globs of the source in config/datasets.yaml)"
    )


_HASHES = 2.0**64


def _hashed(document: Document) -> int:
    return _hash(document.package or document.text)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")
