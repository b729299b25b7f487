"""Writing one shard of whole documents."""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np

from difftransformer.data.mixture import MixedStream, Taken
from difftransformer.data.packed import ShardEntry, file_sha256, retire_manifest
from difftransformer.data.parts import Tally
from difftransformer.provenance import atomic


def token_dtype(vocab_size: int) -> Literal["uint16", "uint32"]:
    """Return the smaller type that holds every id."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def write_shard(
    stream: MixedStream,
    path: Path,
    dtype: Literal["uint16", "uint32"],
    shard_tokens: int,
    sources: Sequence[str],
) -> tuple[ShardEntry, dict[str, Tally]] | None:
    """Take documents until the shard is full or the stream ends; None if there were none."""
    first = next(stream, None)
    if first is None:
        return None
    offsets_path = path.with_suffix(".documents.npy")
    counts = _Counts(sources)
    digest = hashlib.sha256()
    with atomic.replacing(path) as aside, aside.open("wb") as file:
        for document in _until_full(first, stream, shard_tokens):
            content = document.tokens.astype(np.dtype(dtype).newbyteorder("<")).tobytes()
            digest.update(content)
            file.write(content)
            counts.add(document)
        retire_manifest(path.parent)
    with atomic.replacing(offsets_path) as aside:
        np.save(aside, np.array(counts.ends, dtype=np.int64), allow_pickle=False)
    entry = ShardEntry(
        file=path.name,
        tokens=counts.ends[-1],
        documents=len(counts.ends),
        sha256=digest.hexdigest(),
        offsets_file=offsets_path.name,
        offsets_sha256=file_sha256(offsets_path),
    )
    return entry, counts.tallies()


def _until_full(first: Taken, stream: MixedStream, shard_tokens: int) -> Iterable[Taken]:
    total = 0
    for document in chain([first], stream):
        yield document
        total += len(document.tokens)
        if total >= shard_tokens:
            return


class _Counts:
    """Ends of documents, and what each source gave."""

    def __init__(self, sources: Sequence[str]) -> None:
        self.ends: list[int] = []
        self._sources = sources
        self._tokens = dict.fromkeys(sources, 0)
        self._licences: dict[str, dict[str, int]] = {name: {} for name in sources}

    def add(self, document: Taken) -> None:
        name = self._sources[document.source]
        self.ends.append((self.ends[-1] if self.ends else 0) + len(document.tokens))
        self._tokens[name] += len(document.tokens)
        licences = self._licences[name]
        licences[document.licence] = licences.get(document.licence, 0) + 1

    def tallies(self) -> dict[str, Tally]:
        return {
            name: Tally(
                tokens=self._tokens[name],
                documents=sum(licences.values()),
                licences=dict(sorted(licences.items())),
            )
            for name, licences in self._licences.items()
        }
