"""Documents of text sources, and their split into training and validation."""

import hashlib
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, NamedTuple, Protocol

from difftransformer.config.data import DatasetConfig, SplitSettings


class Cursor(NamedTuple):
    """A position in a text source, from which reading resumes.

    Attributes:
        repeat: Completed passes over the source.
        file: Index of the file in the source.
        record: Index of the record in the file.
        window: First window of the next document to be read, see `difftransformer.data.windows`.
    """

    repeat: int = 0
    file: int = 0
    record: int = 0
    window: int = 0


class Document(NamedTuple):
    """A document's text and license, and the cursor after the document.

    ``package`` is the name that is hashed for the split; None: the text is hashed.
    """

    text: str
    license: str
    cursor: Cursor
    package: str | None = None


class Source(Protocol):
    """Interface of text sources.

    Attributes:
        kind: Kind of source, as in the settings.
        weight: Weight of the source's tokens in a mixture, relative to the other sources.
        origin: Where the text comes from, with its version.
        by_name: Whether documents are ordered by file name, so that the first ones are not a random
            sample.
    """

    kind: str
    weight: float
    origin: str
    sorted_by_name: bool

    @property
    def has_validation(self) -> bool:
        """Whether the source has validation text of its own.

        If so, no documents are split off by hash.
        """

    def read(self, split: str, start: Cursor) -> Iterator[Document]:
        """Yield documents from the cursor ``start`` on.

        ``split`` matters only if the source has validation text of its own.
        """

    def identity(self) -> list[Any]:
        """Return the values that determine the documents, in JSON types.

        A change of them invalidates existing shards.
        """


def documents(
    source: Source, split: str, validation_share: float, start: Cursor | None = None
) -> Iterator[Document]:
    """Yield the documents of a source that belong to a split, without blank ones."""
    candidates = iter_split_with_blank(source, split, validation_share, start or Cursor())
    return (document for document in candidates if document.text.strip())


def iter_split_with_blank(
    source: Source, split: str, validation_share: float, start: Cursor
) -> Iterator[Document]:
    """Yield the documents of a source that belong to a split, including blank ones.

    Each blank document is in one of the splits only.
    """
    limit = 0.0 if source.has_validation else validation_hash_limit(source, validation_share)
    for document in source.read(split, start):
        if not document.text.strip():
            if source.has_validation or split == "train":
                yield document
        elif source.has_validation or (_hashed(document) < limit) == (split == "validation"):
            yield document


FEW = 200
"""With fewer documents, a validation share of a few percent may contain none."""


def validation_hash_limit(source: Source, share: float) -> float:
    """Return the hash value below which a document belongs to the validation split.

    It is ``share`` of the largest hash. If a source has few documents and one of the splits would
    be empty, the document with the smallest hash is the validation split.
    """
    limit = share * _HASHES
    readable = (doc for doc in source.read("train", Cursor()) if doc.text.strip())
    first = [_hashed(document) for document in islice(readable, FEW)]
    hashes = sorted(set(first))
    if len(first) == FEW or len(hashes) < 2:
        return limit
    return limit if hashes[0] < limit <= hashes[-1] else hashes[1]  # an int: a float would round


def in_validation(text: str, share: float) -> bool:
    """Return whether a text belongs to the validation split, by its SHA-256.

    Copies of a text are therefore in the same split.
    """
    return _hash(text) < share * _HASHES


def empty_split_message(dataset: DatasetConfig, sources: Collection[str], split: str) -> str:
    """Return the error message for an empty split, with ways to fix it.

    The hash decides in which split the only document is, so both messages are alike.
    """
    configs = [dataset.sources[name] for name in sources]
    packages = any(isinstance(c, SplitSettings) and c.split_by == "package" for c in configs)
    problem, change = {
        "train": ("no text for training, every document is blank or in validation", "lower"),
        "validation": ("no document is left for validation", "raise"),
    }[split]
    needed, cure = "two different documents", "split the text into files"
    if packages:
        needed, cure = "two packages", "sort the files into folders, set split_by: document"
    return (
        f"sources {', '.join(sources)}: {problem}: it takes {needed}; {cure}, {change} "
        f"validation_share ({dataset.validation_share}), or name held-out files (`validation` "
        "globs of the source in config/datasets.yaml)"
    )


_HASHES = 2.0**64


def _hashed(document: Document) -> int:
    return _hash(document.package or document.text)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")
