"""Reading of folders with the user's files, without following links that lead out of them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from difftransformer.errors import DataError


class FolderContents(NamedTuple):
    """Files and links found below a folder.

    Attributes:
        files: Files that can be opened.
        hidden: Hidden files and folders, whose names begin with a dot, and broken links. They are
            not read, since tools, archives and editors leave them behind.
        outside: Links to files and folders outside. They are not followed, since a corpus packed by
            someone else could link to any file of this machine.
    """

    files: list[Path]
    hidden: list[Path]
    outside: list[Path]


def files_below(folder: Path) -> list[Path]:
    """Return the paths of the files below a folder, found as by `read_folder`.

    Raises:
        DataError: A folder cannot be read, or a link leads out of ``folder``.
    """
    contents = read_folder(folder)
    for link in contents.outside:
        require_inside(link, folder)
    return contents.files


def read_folder(folder: Path, root: Path | None = None) -> FolderContents:
    """Return the files below a folder and below folders that are linked in it.

    Each folder is read once. Real folders are read before links to them, so that a link does not
    change the path of any file.

    Args:
        folder: The folder to read.
        root: Folder that the targets of links must be in; None: ``folder``.

    Raises:
        DataError: A folder cannot be read.
    """
    root, contents = root or folder, FolderContents([], [], [])
    waiting, visited = [folder] if folder.is_dir() else [], set[Path]()
    for top in waiting:
        for folder_path, folders, names in os.walk(top, onerror=_refuse):
            if (real := Path(folder_path).resolve()) in visited:
                folders.clear()
                continue
            visited.add(real)
            contents.hidden.extend(_hidden(folder_path, [*folders, *names]))
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for path in (Path(folder_path, name) for name in folders):
                if path.is_symlink():
                    (waiting if is_inside(path, root) else contents.outside).append(path)
            for path in (Path(folder_path, name) for name in names if not name.startswith(".")):
                if path.is_file():
                    inside = not path.is_symlink() or is_inside(path, root)
                    (contents.files if inside else contents.outside).append(path)
    return contents


def is_inside(path: Path, root: Path) -> bool:
    """Return whether a path is in the folder ``root`` after all links are resolved.

    A snapshot in the cache of the Hugging Face Hub consists of links to the folder `blobs` next to
    `snapshots`. Such links count as inside.
    """
    real = path.resolve()
    ancestors = (path.parent.resolve() / path.name).parents
    blobs = [folder.parent / "blobs" for folder in ancestors if folder.name == "snapshots"]
    return any(real.is_relative_to(allowed) for allowed in (root.resolve(), *blobs))


def require_inside(path: Path, root: Path, cure: str = "copy it there") -> None:
    """Check that a path is in the folder ``root`` by `is_inside`.

    Args:
        path: The path.
        root: The folder.
        cure: Advice for the error message.

    Raises:
        DataError: The path is outside of ``root``.
    """
    if not is_inside(path, root):
        raise DataError(f"{path}: is a link to {path.resolve()}, outside {root}: {cure}")


def _hidden(parent: str, names: list[str]) -> Iterator[Path]:
    for name in names:
        path = Path(parent, name)
        if name.startswith(".") or not path.exists():
            yield path


def _refuse(error: OSError) -> None:
    raise DataError(f"{error.filename}: this folder cannot be read ({error.strerror})") from None


def as_named(path: Path) -> Path:
    """Return a path as relative if it is inside the working directory, or else unchanged."""
    cwd = Path.cwd()
    return path.relative_to(cwd) if path.is_relative_to(cwd) else path
