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
        outside: Links to files and folders elsewhere. They are not followed: a corpus that someone
            else packed could link to any file of this machine.
    """

    files: list[Path]
    hidden: list[Path]
    outside: list[Path]


def files_below(folder: Path) -> list[Path]:
    """Return the files below a folder, see `read_folder`.

    Raises:
        DataError: A folder cannot be read, or a link leads elsewhere.
    """
    found = read_folder(folder)
    for link in found.outside:
        require_inside(link, folder)
    return found.files


def read_folder(folder: Path, home: Path | None = None) -> FolderContents:
    """Return what lies below a folder and below linked folders; each folder is read once.

    A folder that lies there itself comes before the links that lead to it, so that a link changes
    the path of no file.

    Args:
        folder: The folder.
        home: Folder that links may lead into; None: ``folder``.

    Raises:
        DataError: A folder cannot be read.
    """
    home, found = home or folder, FolderContents([], [], [])
    waiting, seen = [folder] if folder.is_dir() else [], set[Path]()
    for top in waiting:
        for here, folders, names in os.walk(top, onerror=_refuse):
            if (real := Path(here).resolve()) in seen:
                folders.clear()
                continue
            seen.add(real)
            found.hidden.extend(_hidden(here, [*folders, *names]))
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for path in (Path(here, name) for name in folders):
                if path.is_symlink():
                    (waiting if is_inside(path, home) else found.outside).append(path)
            for path in (Path(here, name) for name in names if not name.startswith(".")):
                if path.is_file():
                    inside = not path.is_symlink() or is_inside(path, home)
                    (found.files if inside else found.outside).append(path)
    return found


def is_inside(path: Path, home: Path) -> bool:
    """Whether a path leads into a folder, through all links.

    A snapshot in the cache of the Hugging Face hub consists of links to `blobs` beside it; these
    are inside.
    """
    real = path.resolve()
    beside = (path.parent.resolve() / path.name).parents
    blobs = [one.parent / "blobs" for one in beside if one.name == "snapshots"]
    return any(real.is_relative_to(one) for one in (home.resolve(), *blobs))


def require_inside(path: Path, home: Path, cure: str = "copy it there") -> None:
    """Check that a path leads into a folder, see `is_inside`.

    Raises:
        DataError: It is, or lies behind, a link to elsewhere; ends with ``cure``.
    """
    if not is_inside(path, home):
        raise DataError(f"{path}: is a link to {path.resolve()}, outside {home}: {cure}")


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
