"""What a job publishes, that it is still that when it is read, and two builds of it compared.

The main file of a job is JSON. Under ``sha256`` it carries the digest of every other file of the
job, by name beside it, and that of all its own content; a job with no JSON to show gets one that
holds nothing else. Readers compare content alone: length and times prove nothing.

The digest of a file is its SHA-256 up to 64 MiB; of a longer one, the SHA-256 of the joined SHA-256
of its blocks of 64 MiB, which threads share: hashlib lets go of the interpreter.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from difftransformer.errors import DataError
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.layout import REPRODUCIBLE

BLOCK = 1 << 26
CHECKSUMS = "sha256"

_PIECE = 1 << 20
_MOST_THREADS = 16


def write_checked(main: Path, content: Mapping[str, Any], beside: Iterable[Path] = ()) -> None:
    """Write the main file of a job, as indented JSON, once all others are there.

    Its content is free of NaN and infinity; the files beside it are in its folder or below.
    """
    files = {path.relative_to(main.parent).as_posix(): digest(path) for path in sorted(beside)}
    assert CHECKSUMS not in content, main
    seal = {"files": files, "self": json_digest([content, files])}
    text = json.dumps({**content, CHECKSUMS: seal}, indent=2, allow_nan=False)
    write_text(main, text + "\n")


def read_checked(main: Path) -> str | bytes:
    """Return the JSON that a main file holds; what is no JSON at all as it is.

    Raises:
        DataError: its content is not what was published.
        FileNotFoundError: there is no such file.
    """
    raw = main.read_bytes()
    try:
        parsed = json.loads(raw)
        content = {name: value for name, value in parsed.items() if name != CHECKSUMS}
    except (ValueError, AttributeError):
        return raw  # the reader says what it lacks
    seal = parsed.get(CHECKSUMS)
    if not isinstance(seal, dict) or seal.get("self") != json_digest([content, seal.get("files")]):
        raise _changed(main, _cure(main))
    return json.dumps(content)


def verify_file(path: Path, main: Path, cure: str | None = None) -> None:
    """Compare a file with its digest in the main file of its job, once a process.

    ``cure`` says what to do where no job makes the files.

    Raises:
        DataError: its content is not what was published, or it is missing, or either file is.
    """
    try:
        found, recorded = digest(path), _files(main, file_state(main))
    except OSError as error:
        raise DataError(
            f"{error.filename}: cannot be read ({error.strerror}); {cure or _cure(main)}"
        ) from None
    if recorded.get(path.relative_to(main.parent).as_posix()) != found:
        raise _changed(path, cure or _cure(main))


def digest(path: Path) -> str:
    """Return the digest of a file, read once a process while it stays untouched."""
    return _digest(path, file_state(path))


def file_sha256(path: Path) -> str:
    """SHA-256 of a file however long, as other tools reckon it."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _changed(path: Path, cure: str) -> DataError:
    return DataError(f"{path}: its content is not what was published; {cure}")


def _cure(main: Path) -> str:
    return f"delete {main}, and `snakemake {main}` with the same --config makes it again"


def file_state(path: Path) -> tuple[int, ...]:
    """What changes with every write, whatever a tool makes of the time of modification."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def json_digest(content: Any) -> str:
    """SHA-256 of what has a JSON form, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def weights_digest(main: Path) -> str:
    """Digest of the weights that a training published, by the sums in its result.

    The same training, forced again on a GPU or elsewhere, has the same fingerprint and other bytes.

    Raises:
        DataError: The result is damaged.
    """
    files = _files(main, file_state(main))
    return json_digest({name: one for name, one in files.items() if name.endswith(".safetensors")})


@cache
def _files(main: Path, state: tuple[int, ...]) -> dict[str, str]:
    del state
    try:
        read_checked(main)
        files: dict[str, str] = json.loads(main.read_bytes())[CHECKSUMS]["files"]
    except (ValueError, KeyError, TypeError):
        raise _changed(main, _cure(main)) from None
    return files


@cache
def _digest(path: Path, state: tuple[int, ...]) -> str:
    starts = range(0, state[1], BLOCK)
    if len(starts) <= 1:
        return _block(path, 0).hex()
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1, len(starts))) as threads:
        return hashlib.sha256(b"".join(threads.map(partial(_block, path), starts))).hexdigest()


def _block(path: Path, start: int) -> bytes:
    """SHA-256 of the block that begins at ``start``."""
    found, piece = hashlib.sha256(), memoryview(bytearray(_PIECE))
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        left = BLOCK
        while left and (count := file.readinto(piece[:left])):
            found.update(piece[:count])
            left -= count
    return found.digest()


@dataclass(frozen=True)
class FileComparison:
    """A file of the rebuild: its name below the scale's folder, and its sums in both builds."""

    name: str
    rebuilt: str
    kept: str | None

    @property
    def same(self) -> bool:
        """Whether the two hold the same."""
        return self.rebuilt == self.kept


def compare_builds(kept: Path, rebuilt: Path) -> list[FileComparison]:
    """Compare the `REPRODUCIBLE` folders of two builds of a scale, file by file.

    Shards, weights, details of evaluations, tables and figures count byte by byte; of a result file
    everything but its ``provenance``, which says when and on what it was made, and its digests.

    Raises:
        DataError: ``rebuilt`` holds nothing that could be compared.
    """
    files = [
        path
        for folder in REPRODUCIBLE
        for path in sorted((rebuilt / folder).rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    ]
    if not files:
        raise DataError(f"{rebuilt}: nothing is built there; name a folder results/<scale>")
    names = [path.relative_to(rebuilt) for path in files]
    before = [content_digest(kept / n) if (kept / n).is_file() else None for n in names]
    rebuilds = [content_digest(path) for path in files]
    return [FileComparison(*one) for one in zip(map(str, names), rebuilds, before, strict=True)]


def content_digest(path: Path) -> str:
    """SHA-256 of what a file holds; of a result file without what differs by its provenance."""
    if path.suffix == ".json":
        with suppress(ValueError):  # a damaged one differs from a whole one
            parsed = json.loads(path.read_bytes())
            if isinstance(parsed, dict) and "provenance" in parsed:
                own = {k: v for k, v in parsed.items() if k not in ("provenance", CHECKSUMS)}
                return json_digest(own)
    return digest(path)
