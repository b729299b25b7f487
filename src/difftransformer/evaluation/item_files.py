"""Folders and files of benchmark items: JSON lines, plain or gzipped. Imports nothing heavy."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from difftransformer.config.folders import require_inside
from difftransformer.data.readers import lines, parse_line, require_unicode
from difftransformer.errors import DataError, in_one_line

HUB, BUILTIN = "hub", "builtin"
ENDINGS = (".jsonl", ".jsonl.gz")


def items_folder(data: str, allowed: str = "<task>/<split>.jsonl, 'hub' or 'builtin'") -> Path:
    """Return the folder of benchmark items that the setting `data` names.

    Args:
        data: Path of the folder.
        allowed: Description of the values that `data` can have, for the error message.

    Raises:
        DataError: The folder does not exist.
    """
    root = Path(data).expanduser()
    if not root.is_dir():
        raise DataError(f"benchmarks: {root}: no such folder; name a folder with {allowed}")
    return root


def jsonl_file(root: Path, task: str, split: str, *, bundled: bool = False) -> Path | None:
    """Return the path of a split's item file, plain or gzipped, or None if there is none.

    Args:
        root: Folder of the items of all tasks.
        task: Name of the task's folder in ``root``.
        split: Name of the split, which is the file name without its ending.
        bundled: Whether ``root`` belongs to this package. Its files may be symbolic links, as
            some installers make them.

    Raises:
        DataError: The file is a symbolic link to a file outside ``root``.
    """
    paths = (root / task / f"{split}{ending}" for ending in ENDINGS)
    file = next((path for path in paths if path.is_file()), None)
    if file is not None and not bundled:
        require_inside(file, root)
    return file


def read_items(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the items of a JSON-lines file, each as (location, item); skip blank lines.

    A location is the path with the line number, for messages.

    Raises:
        DataError: The file cannot be read, is in UTF-16, or a line is not valid JSON.
    """
    for number, line in enumerate(lines(path), start=1):
        if line.strip():
            location = f"{path}: line {number}"
            yield location, parse_item(line, location)


def split_lines(text: str) -> list[str]:
    """Return the lines of a text in JSON-lines format, split at newlines only."""
    return text.removesuffix("\n").split("\n") if text else []


def parse_item(line: bytes, location: str) -> Any:
    """Return the item in a line of JSON.

    ``location`` is the file and line, for messages.

    Raises:
        DataError: The line is not JSON, or has half a surrogate pair.
    """
    item = parse_line(line, location)
    require_unicode(json.dumps(item, ensure_ascii=False), location)
    return item


@contextmanager
def hub_items(
    name: str, dataset: str, alternative: str = "a folder with its items"
) -> Iterator[None]:
    """Context that turns any error of loading a dataset from the hub into a `DataError`.

    Args:
        name: Name of the benchmark, for the message.
        dataset: Name of the dataset on the Hugging Face hub.
        alternative: Another value of the setting `benchmarks`, for the message.
    """
    try:
        yield
    except Exception as error:  # the hub, the network and `datasets` fail in many ways
        raise DataError(
            f"{name}: {dataset} cannot be loaded from the Hugging Face hub "
            f"({in_one_line(error)}); check the network, or set `benchmarks` to {alternative}"
        ) from None
