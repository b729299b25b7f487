"""Files that users bring: corpora, tokenizers, benchmark items, folders of pretrained models.

Snakemake knows an input by its time of modification, which `cp -p`, `rsync -t` and `tar x` set
back, and it reads braces in a path as wildcards. A job therefore declares a *listing* of the user's
files that it reads. The name of the listing is made of their paths, sizes and digests: other
content is another input, and a file that was only touched is the same one.
"""

import hashlib
import json
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from difftransformer.config.folders import as_named
from difftransformer.errors import DataError
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.checksums import digest, file_state

_SETTLED = 2.0
"""Seconds. The digest of a file written less than this before hashing is not cached: a second write
may not change its timestamps."""
_WORTH_SAYING = 1 << 32
"""Bytes from which hashing takes so long that it is announced."""


@dataclass(frozen=True)
class UserFiles:
    """Listings and cached digests of the user's files."""

    folder: Path
    """Where both are stored; created when needed."""

    def listing(self, name: str, files: Iterable[Path]) -> list[str]:
        """Write the listing of files, and return its path; an empty list for no files.

        A digest is computed once, and again when inode, size or a time of the file changes.

        Args:
            name: Of the set of files; letters, digits, ``_`` and ``-``.
            files: The files.

        Raises:
            DataError: A file cannot be read.
        """
        paths = list(files)
        if not paths:
            return []
        entries = zip(paths, self._entries(name, paths), strict=True)
        lines = [[str(as_named(path)), *entry] for path, entry in entries]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        # In a folder of its own: Snakemake looks once what a folder holds, and maybe earlier.
        content_id = f"files-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        listing = self.folder / content_id / f"{name}.jsonl"
        if not listing.is_file():
            self._write(listing, text)
        return [str(listing)]

    def _entries(self, name: str, paths: list[Path]) -> list[tuple[int, str]]:
        """Return size and digest of each file."""
        cache = self.folder / f"digests-{name}.json"
        cached: dict[str, list[object]] = {}
        with suppress(OSError, ValueError, AttributeError):
            read = json.loads(cache.read_text(encoding="utf-8")).items()
            cached = {path: entry for path, entry in read if isinstance(entry, list) and entry}
        try:
            states = [list(file_state(path)) for path in paths]
            new = [
                state[1]
                for path, state in zip(paths, states, strict=True)
                if cached.get(str(path), [])[:-1] != state
            ]
            if sum(new) > _WORTH_SAYING:
                print(
                    f"reading {len(new)} files of {name}, {sum(new) / 1e9:.0f} GB, to know them by "
                    "their content; the next call reads only what has changed",
                    file=sys.stderr,
                )
            entries, settled = [], {}
            for path, state in zip(paths, states, strict=True):
                *before, file_digest = cached.get(str(path), [None])
                started = time.time()
                if before != state or not isinstance(file_digest, str):
                    file_digest = digest(path)
                entries.append((state[1], file_digest))
                if before == state or state[3] / 1e9 < started - _SETTLED:
                    settled[str(path)] = [*state, file_digest]
        except OSError as error:
            reason = (error.strerror or "unreadable").lower()
            raise DataError(
                f"{error.filename}: cannot be read ({reason}); make it readable, or take it away"
            ) from None
        if settled != cached:
            self._write(cache, json.dumps(settled))
        return entries

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
