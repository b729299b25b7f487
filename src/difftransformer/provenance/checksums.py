"""Checksums of a job's output files: written with the result, verified on reading.

The main output of a job is a JSON file. Its key ``sha256`` records the digest of each other output
file and of its own content. A job without a JSON result gets a JSON file with checksums only.
Readers compare content only, since sizes and times prove nothing.

The digest of a file of at most 64 MiB is its SHA-256. The digest of a longer file is the SHA-256 of
the concatenated SHA-256 of its 64 MiB blocks, which threads compute in parallel.
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

_CHUNK = 1 << 20
_MAX_THREADS = 16


def write_checked(main: Path, content: Mapping[str, Any], beside: Iterable[Path] = ()) -> None:
    """Write the main output of a job as JSON with checksums; call it after all other outputs exist.

    Args:
        main: The JSON file.
        content: Its content, without NaN and infinity.
        beside: Other output files of the job, in the folder of ``main`` or below.
    """
    files = {path.relative_to(main.parent).as_posix(): digest(path) for path in sorted(beside)}
    assert CHECKSUMS not in content, main
    seal = {"files": files, "self": json_digest([content, files])}
    text = json.dumps({**content, CHECKSUMS: seal}, indent=2, allow_nan=False)
    write_text(main, text + "\n")


def read_checked(main: Path) -> str | bytes:
    """Return the JSON text of a job's main output file after verifying its checksum.

    A file that is not JSON is returned unchanged: the caller reports it.

    Raises:
        DataError: The content differs from what the job wrote.
        FileNotFoundError: There is no such file.
    """
    raw = main.read_bytes()
    try:
        parsed = json.loads(raw)
        content = {name: value for name, value in parsed.items() if name != CHECKSUMS}
    except (ValueError, AttributeError):
        return raw
    seal = parsed.get(CHECKSUMS)
    if not isinstance(seal, dict) or seal.get("self") != json_digest([content, seal.get("files")]):
        raise _changed(main, _cure(main))
    return json.dumps(content)


def verify_file(path: Path, main: Path, cure: str | None = None) -> None:
    """Check a file against the digest that its job recorded in the job's main output.

    An unmodified file is read once per process.

    Args:
        path: The file.
        main: The main output of the job that wrote it.
        cure: Advice for the error message; default: rebuild with Snakemake.

    Raises:
        DataError: A file is missing, or its content differs from what the job wrote.
    """
    try:
        actual, recorded = digest(path), _files(main, file_state(main))
    except OSError as error:
        raise DataError(
            f"{error.filename}: cannot be read ({error.strerror}); {cure or _cure(main)}"
        ) from None
    if recorded.get(path.relative_to(main.parent).as_posix()) != actual:
        raise _changed(path, cure or _cure(main))


def digest(path: Path) -> str:
    """Return the digest of a file: its SHA-256, computed over blocks for more than 64 MiB.

    An unmodified file is read once per process.
    """
    return _digest(path, file_state(path))


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a whole file in hexadecimal, as printed by the command `sha256sum`."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _changed(path: Path, cure: str) -> DataError:
    return DataError(f"{path}: checksum mismatch; {cure}")


def _cure(main: Path) -> str:
    return f"delete {main}, then rebuild it: `snakemake {main}` with the same --config"


def file_state(path: Path) -> tuple[int, ...]:
    """Return inode, size, modification and change time of a file, which change with every write."""
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def json_digest(content: Any) -> str:
    """Return the SHA-256 of a value's JSON text with sorted keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def weights_digest(main: Path) -> str:
    """Return a digest of a training's weight files, from the checksums in the training's result.

    A training repeated on a GPU or another machine has the same fingerprint but other weights.

    Raises:
        DataError: The result is damaged.
    """
    files = _files(main, file_state(main))
    weights = {name: sha for name, sha in files.items() if name.endswith(".safetensors")}
    return json_digest(weights)


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
    with ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1, len(starts))) as threads:
        return hashlib.sha256(b"".join(threads.map(partial(_block, path), starts))).hexdigest()


def _block(path: Path, start: int) -> bytes:
    """Return the SHA-256 of the block of a file that begins at ``start``."""
    sha256, piece = hashlib.sha256(), memoryview(bytearray(_CHUNK))
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        left = BLOCK
        while left and (count := file.readinto(piece[:left])):
            sha256.update(piece[:count])
            left -= count
    return sha256.digest()


@dataclass(frozen=True)
class FileComparison:
    """A file of a rebuild: its path below the folder of the scale and its digest in both builds."""

    name: str
    rebuilt: str
    built: str | None

    @property
    def same(self) -> bool:
        """Whether the content is the same in both builds."""
        return self.rebuilt == self.built


def compare_builds(built: Path, rebuilt: Path) -> list[FileComparison]:
    """Compare two builds of a scale, file by file, in the folders listed in `REPRODUCIBLE`.

    Result files are compared without their ``provenance`` (times, machine) and checksums, all other
    files byte by byte.

    Raises:
        DataError: The folder ``rebuilt`` contains no files to compare.
    """
    files = [
        path
        for folder in REPRODUCIBLE
        for path in sorted((rebuilt / folder).rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    ]
    if not files:
        raise DataError(f"{rebuilt}: nothing is built there; give a folder results/<scale>")
    names = [path.relative_to(rebuilt) for path in files]
    before = [content_digest(built / n) if (built / n).is_file() else None for n in names]
    rebuilds = [content_digest(path) for path in files]
    columns = zip(map(str, names), rebuilds, before, strict=True)
    return [FileComparison(*values) for values in columns]


def content_digest(path: Path) -> str:
    """Return the digest of a file; the provenance and checksums of a result file do not count."""
    if path.suffix == ".json":
        with suppress(ValueError):  # a damaged file is compared byte by byte
            parsed = json.loads(path.read_bytes())
            if isinstance(parsed, dict) and "provenance" in parsed:
                own = {k: v for k, v in parsed.items() if k not in ("provenance", CHECKSUMS)}
                return json_digest(own)
    return digest(path)
