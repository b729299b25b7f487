"""Checksums of two builds of the same thing: same commit, settings and machine, same bytes."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from difftransformer.errors import DataError
from difftransformer.provenance.published import SEAL

FOLDERS = ("data", "runs", "evaluations", "tables", "figures")


@dataclass(frozen=True)
class Compared:
    """A file of the rebuild: its name below the scale's folder, and its sums in both builds."""

    name: str
    rebuilt: str
    kept: str | None

    @property
    def same(self) -> bool:
        """Whether the two hold the same."""
        return self.rebuilt == self.kept


def compare_builds(kept: Path, rebuilt: Path) -> list[Compared]:
    """Compare every file of ``rebuilt``, a folder ``results/{scale}``, with that of ``kept``.

    Shards, weights, details of evaluations, tables and figures count byte by byte; of a result file
    everything but its ``provenance``, which says when and on what it was made, and its digests.

    Raises:
        DataError: ``rebuilt`` holds nothing that could be compared.
    """
    files = [
        path
        for folder in FOLDERS
        for path in sorted((rebuilt / folder).rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    ]
    if not files:
        raise DataError(f"{rebuilt}: nothing is built there; name a folder results/<scale>")
    names = [path.relative_to(rebuilt) for path in files]
    return [
        Compared(str(name), content_digest(rebuilt / name), _kept_digest(kept / name))
        for name in names
    ]


def content_digest(path: Path) -> str:
    """SHA-256 of what a file holds; of a result file without what differs by its provenance."""
    content = path.read_bytes()
    if path.suffix == ".json":
        parsed = json.loads(content)
        if isinstance(parsed, dict) and "provenance" in parsed:
            parsed = {k: v for k, v in parsed.items() if k not in ("provenance", SEAL)}
            content = json.dumps(parsed, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()


def _kept_digest(path: Path) -> str | None:
    return content_digest(path) if path.is_file() else None
