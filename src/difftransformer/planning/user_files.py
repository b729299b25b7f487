"""Files that users bring: corpora, tokenizers, benchmark items, folders of pretrained models.

Snakemake decides by the modification time of an input whether to rerun a job. The commands `cp -p`,
`rsync -t` and `tar x` restore old times. Snakemake also reads braces in a path as wildcards.
Therefore a job declares as its input a *listing* of the user's files that it reads. The name of the
listing contains a digest of the files' paths, sizes and digests. So changed content gives another
input, and a file that was only touched gives the same input.
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
"""Seconds. The digest of a file that was written less than this before hashing is not cached, since
a second write may leave its timestamps unchanged."""
_WORTH_SAYING = 1 << 32
"""Bytes from which hashing takes so long that a message announces it."""


@dataclass(frozen=True)
class UserFiles:
    """Writer of listings of the user's files, with cached digests."""

    folder: Path
    """Folder of the listings and of the cached digests; created when needed."""

    def listing(self, name: str, files: Iterable[Path]) -> list[str]:
        """Write the listing of ``files`` and return its path; an empty list for no files.

        The digest of a file is computed again only if its inode, size or a timestamp changed.

        Args:
            name: Name of the set of files; letters, digits, ``_`` and ``-``.
            files: Paths of the files.

        Raises:
            DataError: A file cannot be read.
        """
        paths = list(files)
        if not paths:
            return []
        entries = zip(paths, self._entries(name, paths), strict=True)
        lines = [[str(as_named(path)), *entry] for path, entry in entries]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        # In a folder of its own, since Snakemake may have cached the content of an older folder.
        content_id = f"files-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        listing = self.folder / content_id / f"{name}.jsonl"
        if not listing.is_file():
            self._write(listing, text)
        return [str(listing)]

    def _entries(self, name: str, paths: list[Path]) -> list[tuple[int, str]]:
        """Return the size in bytes and the digest of each file."""
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
