"""Folders and paths of the user's."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from difftransformer.errors import DataError


class FolderContents(NamedTuple):
    """Files below a folder.

    Attributes:
        files: Files that can be opened.
        hidden: Hidden files and folders, whose names begin with a dot, and broken links: tools,
            archives and editors leave these behind, so nothing in them is read.
    """

    files: list[Path]
    hidden: list[Path]


def files_below(folder: Path) -> list[Path]:
    """Return the files below a folder, see `read_folder`."""
    return read_folder(folder).files


def read_folder(folder: Path) -> FolderContents:
    """Return the files below a folder and below linked folders; each folder is read once.

    A folder that lies there itself comes before the links that lead to it, so that a link changes
    the path of no file.

    Raises:
        DataError: A folder cannot be read.
    """
    waiting, seen, found = [folder] if folder.is_dir() else [], set[Path](), FolderContents([], [])
    for top in waiting:
        for here, folders, names in os.walk(top, onerror=_refuse):
            if (real := Path(here).resolve()) in seen:
                folders.clear()
                continue
            seen.add(real)
            found.hidden.extend(_hidden(here, [*folders, *names]))
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            linked = [Path(here, name) for name in folders]
            waiting += [path for path in linked if path.is_symlink()]
            found.files.extend(
                path
                for name in names
                if not name.startswith(".") and (path := Path(here, name)).is_file()
            )
    return found


def _hidden(here: str, names: list[str]) -> Iterator[Path]:
    for name in names:
        path = Path(here, name)
        if name.startswith(".") or not path.exists():
            yield path


def _refuse(error: OSError) -> None:
    raise DataError(f"{error.filename}: this folder cannot be read ({error.strerror})") from None


def as_named(path: Path) -> Path:
    """Return a path from the working directory on, if it is below it: it stays when that moves."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
