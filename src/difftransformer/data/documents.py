"""What every source of text yields: documents, each with the place behind it, in two splits."""

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol


class Cursor(NamedTuple):
    """A place in a source: how often it was read through, file in it, record in the file."""

    repeat: int = 0
    unit: int = 0
    record: int = 0


class Document(NamedTuple):
    """A text, its licence, the cursor just behind it, and what it is held out with.

    ``package`` is the name of a package that is held out as one; None: the text itself decides.
    """

    text: str
    licence: str
    cursor: Cursor
    package: str | None = None


class Source(Protocol):
    """What every kind of source offers."""

    kind: str
    weight: float
    origin: str

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
    for document in source.read(split, start or Cursor()):
        if not document.text.strip():
            continue
        decides = document.package or document.text
        if source.has_validation or held_out(decides, validation_share) == (split == "validation"):
            yield document


def held_out(text: str, share: float) -> bool:
    """Whether a text belongs to validation: its SHA-256 decides, so copies stay together."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") < share * 2.0**64
