"""Finished shards of a job that may be killed, each with a part file that says how to go on.

Shards lie in the output folder, part files in the state folder. A part counts only if it was made
from the same inputs and its shard is whole (by sha256), so whatever a kill leaves behind is safe.
"""

import logging
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from difftransformer.config.base import Settings, setting
from difftransformer.data.packed import SPLITS, ShardEntry, SplitEntry, file_sha256
from difftransformer.provenance import atomic

_log = logging.getLogger(__name__)
_OURS = re.compile(rf"\.?(?:{'|'.join(SPLITS)})-\d{{5}}\b.*\.(?:bin|npy)")


class Tally(Settings):
    """What one source gave to one shard."""

    tokens: int = setting(meaning="Tokens.", unit="tokens")
    documents: int = setting(meaning="Documents.")
    licences: dict[str, int] = setting(meaning="Documents under each licence.")


class Part(Settings):
    """A finished shard and the position behind it."""

    inputs: str = setting(meaning="Digest of settings, tokenizer and sources.")
    shard: ShardEntry = setting(meaning="The shard.")
    tallies: dict[str, Tally] = setting(meaning="What each source gave.")
    taken: list[int] = setting(meaning="Tokens taken so far, by source.", unit="tokens")
    cursors: list[list[int]] = setting(meaning="Cursor behind the last document, by source.")
    finished: bool = setting(meaning="Whether this is the last shard of the split.")


def shard_name(split: str, index: int) -> str:
    """File name of a shard."""
    return f"{split}-{index:05d}.bin"


def intact_parts(split: str, inputs: str, output: Path, state: Path) -> list[Part]:
    """Parts from the first on whose shards are whole; the work goes on after the last of them."""
    parts: list[Part] = []
    while not (parts and parts[-1].finished):
        part = _read_part(_part_path(state, split, len(parts)))
        if part is None or part.inputs != inputs or not _whole(output, part.shard):
            break
        parts.append(part)
    if parts:
        _log.info("%s: %d finished shards are taken over", split, len(parts))
    return parts


def write_part(part: Part, split: str, index: int, state: Path) -> None:
    """Record a finished shard; called after the shard has its final name."""
    atomic.write_text(_part_path(state, split, index), part.model_dump_json(indent=1) + "\n")


def split_entry(parts: Sequence[Part]) -> SplitEntry:
    """Build the manifest's entry of a split."""
    return SplitEntry(
        tokens=sum(part.shard.tokens for part in parts),
        documents=sum(part.shard.documents for part in parts),
        shards=[part.shard for part in parts],
    )


def remove_strangers(output: Path, keep: Sequence[Part]) -> None:
    """Remove shards and half-written files of earlier, different work from the output folder."""
    names = {part.shard.file for part in keep} | {part.shard.offsets_file for part in keep}
    for path in output.iterdir():
        if _OURS.fullmatch(path.name) and path.name not in names:
            path.unlink()


def _part_path(state: Path, split: str, index: int) -> Path:
    return state / f"{split}-{index:05d}.part.json"


def _read_part(path: Path) -> Part | None:
    try:
        return Part.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        _log.warning("%s: not a part file, its shard is made again", path)
        return None


def _whole(output: Path, shard: ShardEntry) -> bool:
    files = [(shard.file, shard.sha256), (shard.offsets_file, shard.offsets_sha256)]
    return all(
        name is None or ((output / name).is_file() and file_sha256(output / name) == digest)
        for name, digest in files
    )
