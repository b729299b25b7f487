"""Folders and files of benchmark items: one JSON object a line, plain or gzipped. Light."""

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


def items_folder(data: str, known: str = "<task>/<split>.jsonl, 'hub' or 'builtin'") -> Path:
    """Return the folder that `data` names.

    Args:
        data: Its path.
        known: What could be named, for the message.

    Raises:
        DataError: There is none.
    """
    root = Path(data).expanduser()
    if not root.is_dir():
        raise DataError(f"benchmarks: {root}: no such folder; name one with {known}")
    return root


def jsonl_file(root: Path, task: str, split: str, *, bundled: bool = False) -> Path | None:
    """Return the file of a split's items, plain or compressed; None if there is none.

    Args:
        root: Folder of the items.
        task: Folder below it.
        split: Name of the file without its ending.
        bundled: Whether it is a folder of this package, whose files an installer may link.

    Raises:
        DataError: The file is a link out of ``root``.
    """
    paths = (root / task / f"{split}{ending}" for ending in ENDINGS)
    file = next((path for path in paths if path.is_file()), None)
    if file is not None and not bundled:
        require_inside(file, root)
    return file


def read_items(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the items of a file, each with the place of its line; blank lines are left out.

    Raises:
        DataError: It cannot be read, is in UTF-16, or a line is no JSON.
    """
    for number, line in enumerate(lines(path), start=1):
        if line.strip():
            place = f"{path}: line {number}"
            yield place, parsed(line, place)


def written_lines(text: str) -> list[str]:
    """Lines of a JSON-lines text; unlike `str.splitlines` it does not split inside a string."""
    return text.removesuffix("\n").split("\n") if text else []


def parsed(line: bytes, place: str) -> Any:
    """Return what a line of JSON holds.

    Raises:
        DataError: It is no JSON, or spells half a surrogate pair; names ``place``.
    """
    item = parse_line(line, place)
    require_unicode(json.dumps(item, ensure_ascii=False), place)
    return item


@contextmanager
def hub_items(
    name: str, dataset: str, otherwise: str = "a folder with its items"
) -> Iterator[None]:
    """Load a data set from the hub within; ``otherwise`` is what `benchmarks` could be.

    Raises:
        DataError: It cannot be had; names the set and the way around.
    """
    try:
        yield
    except Exception as error:  # the hub, the network and `datasets` fail in many ways
        raise DataError(
            f"{name}: {dataset} cannot be had from the Hugging Face hub ({in_one_line(error)}); "
            f"check the network, or set `benchmarks` to {otherwise}"
        ) from None
