"""What lies below a folder of the user's."""

import os
from collections.abc import Iterator
from pathlib import Path


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, those of linked folders, too; each folder is read once.

    A folder that lies there itself comes before the links that lead to it, so that a link changes
    the path of no file.
    """
    waiting, seen = [folder], set[Path]()
    for top in waiting:
        for here, folders, names in os.walk(top):
            if (real := Path(here).resolve()) in seen:
                folders.clear()
                continue
            seen.add(real)
            folders.sort()  # os.walk goes on with them in this order
            below = [Path(here, name) for name in folders]
            waiting += [path for path in below if path.is_symlink()]
            yield from (path for name in names if (path := Path(here, name)).is_file())
