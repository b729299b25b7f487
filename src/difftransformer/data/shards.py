"""Shards of a dataset, written by a job that resumes after a kill.

Shards and their checkpoints are in the state folder, since the outputs of a failed job are deleted.
A checkpoint is valid only for the same inputs and if its shard is intact (by SHA-256). Completed
shards are linked into the output folder.
"""

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from difftransformer.config.base import Settings, setting
from difftransformer.data.mixture import MixedDocument
from difftransformer.data.packed import SPLITS, ShardEntry, SplitEntry, TrainTestOverlap, Truncated
from difftransformer.provenance import atomic
from difftransformer.provenance.checksums import file_sha256

_log = logging.getLogger(__name__)
_OURS = re.compile(rf"\.?(?:{'|'.join(SPLITS)})-\d{{5}}\b.*\.(?:bin|npy)")


TokenType = Literal["uint16", "uint32"]


class SourceCounts(Settings):
    """Numbers of tokens and documents, and licenses, of one source in one shard."""

    tokens: int = setting(meaning="Tokens.", unit="tokens")
    documents: int = setting(meaning="Documents.")
    licenses: dict[str, int] = setting(meaning="Documents under each license.")
    truncated: Truncated = setting(Truncated(documents=0, tokens=0), meaning="What was truncated.")


class ShardCheckpoint(Settings):
    """A finished shard and the position after it, from which packing resumes."""

    inputs: str = setting(meaning="Digest of settings, tokenizer and sources.")
    shard: ShardEntry = setting(meaning="The shard.")
    tallies: dict[str, SourceCounts] = setting(meaning="Counts by source.")
    consumed: list[int] = setting(meaning="Tokens consumed so far, by source.", unit="tokens")
    cursors: list[list[int]] = setting(meaning="Cursor after the last document, by source.")
    blank: list[int] = setting([], meaning="Documents without text so far, by source.")
    overlap: TrainTestOverlap | None = setting(
        None, meaning="Train/test overlap of the validation split."
    )
    finished: bool = setting(meaning="Whether this is the last shard of the split.")


def shard_name(split: str, index: int) -> str:
    """Return the file name of shard number ``index`` of a split."""
    return f"{split}-{index:05d}.bin"


def token_dtype(vocab_size: int) -> TokenType:
    """Return the smallest integer type that holds every token id of a vocabulary."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def write_tokens(path: Path, dtype: TokenType, pieces: Iterable[NDArray[np.integer]]) -> str:
    """Write a shard's tokens to ``path`` piece by piece; return the SHA-256 of the file."""
    digest = hashlib.sha256()
    with atomic.replacing(path) as aside, aside.open("wb") as file:
        for tokens in pieces:
            content = tokens.astype(np.dtype(dtype).newbyteorder("<")).tobytes()
            digest.update(content)
            file.write(content)
    return digest.hexdigest()


def write_shard(
    stream: Iterator[MixedDocument],
    path: Path,
    dtype: TokenType,
    shard_tokens: int,
    sources: Sequence[str],
) -> tuple[ShardEntry, dict[str, SourceCounts]] | None:
    """Write documents of a stream to a shard until the shard is full or the stream ends.

    Returns:
        The manifest entry and the counts per source; None if the stream has no more documents.
    """
    first = next(stream, None)
    if first is None:
        return None
    lengths: list[int] = []
    tokens = dict.fromkeys(sources, 0)
    licenses = {name: Counter[str]() for name in sources}
    cut: dict[str, list[int]] = {name: [] for name in sources}

    def until_full() -> Iterator[NDArray[np.uint32]]:
        for document in chain([first], stream):
            name, length = sources[document.source], len(document.tokens)
            yield document.tokens
            lengths.append(length)
            tokens[name] += length
            licenses[name][document.license] += 1
            cut[name] += [document.cut] * (document.cut > 0)
            if sum(tokens.values()) >= shard_tokens:
                return

    sha256 = write_tokens(path, dtype, until_full())
    offsets_path = path.with_suffix(".documents.npy")
    with atomic.replacing(offsets_path) as aside:
        np.save(aside, np.cumsum(lengths, dtype=np.int64), allow_pickle=False)
    entry = ShardEntry(
        file=path.name,
        tokens=sum(lengths),
        documents=len(lengths),
        sha256=sha256,
        offsets_file=offsets_path.name,
        offsets_sha256=file_sha256(offsets_path),
    )
    return entry, {
        name: SourceCounts(
            tokens=tokens[name],
            documents=count.total(),
            licenses=dict(sorted(count.items())),
            truncated=Truncated(documents=len(cut[name]), tokens=sum(cut[name])),
        )
        for name, count in licenses.items()
    }


def completed_shards(split: str, inputs: str, state: Path) -> list[ShardCheckpoint]:
    """Return the checkpoints of a split's intact shards, from the first shard on.

    Packing resumes after them.
    """
    parts: list[ShardCheckpoint] = []
    while not (parts and parts[-1].finished):
        part = _read_part(_part_path(state, split, len(parts)))
        if part is None or part.inputs != inputs or not _is_intact(state, part.shard):
            break
        parts.append(part)
    if parts:
        _log.info("%s: reusing %d finished shards", split, len(parts))
    return parts


def save_checkpoint(part: ShardCheckpoint, split: str, index: int, state: Path) -> None:
    """Write the checkpoint of a finished shard; call it after the shard has its final name."""
    atomic.write_text(_part_path(state, split, index), part.model_dump_json(indent=1) + "\n")


def split_entry(parts: Sequence[ShardCheckpoint]) -> SplitEntry:
    """Return the manifest entry of a split from the checkpoints of its shards."""
    return SplitEntry(
        tokens=sum(part.shard.tokens for part in parts),
        documents=sum(part.shard.documents for part in parts),
        shards=[part.shard for part in parts],
    )


def remove_stale(folder: Path, keep: Container[str]) -> None:
    """Remove the shards in ``folder``, also partial ones, whose names are not in ``keep``."""
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name) and path.name not in keep:
            path.unlink()


def _part_path(state: Path, split: str, index: int) -> Path:
    return state / f"{split}-{index:05d}.part.json"


def _read_part(path: Path) -> ShardCheckpoint | None:
    try:
        return ShardCheckpoint.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        pass
    except ValidationError:
        _log.warning("%s: not a valid checkpoint, its shard is made again", path)
    return None


def _is_intact(folder: Path, shard: ShardEntry) -> bool:
    return all(
        (folder / name).is_file() and file_sha256(folder / name) == digest
        for name, digest in shard.digests.items()
    )
