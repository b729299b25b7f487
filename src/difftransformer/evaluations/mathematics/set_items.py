"""Read or generate the items of mathematics sets, and check their fields, without lm-eval."""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from urllib.request import urlopen

from difftransformer.data.arithmetic import held_out_problems
from difftransformer.data.math_sets import MATH_SETS, SOURCE, Item
from difftransformer.errors import DataError
from difftransformer.evaluation.item_files import (
    BUILTIN,
    HUB,
    items_folder,
    jsonl_file,
    parse_item,
    read_items,
    split_lines,
)

_GENERATED = 100
_ITEMS_SEED = 20_003
_SECONDS = 60


def set_files(name: str, data: str) -> list[Path]:
    """Return a set's item files in a local folder; empty if it is generated or on the hub.

    Raises:
        DataError: The folder or the set's file is missing.
    """
    if data in (HUB, BUILTIN):
        return []
    root = items_folder(data)
    files = [path for stem in MATH_SETS[name].files if (path := jsonl_file(root, name, stem))]
    if not files:
        raise DataError(
            f"benchmarks: {root / name}: holds no {MATH_SETS[name].files[0]}.jsonl or .jsonl.gz; "
            f"put {name} there, or take it out of the suite's tasks"
        )
    return files


def set_items(name: str, data: str, limit: int | None) -> list[Item]:
    """Return the first ``limit`` items of a set (None: all), each with a question and an answer.

    Raises:
        DataError: An item lacks a question or answer, or the hub cannot be reached.
    """
    if data == BUILTIN:
        problems = held_out_problems(name, limit or _GENERATED, _ITEMS_SEED)
        return [problem.item for problem in problems]
    items_by_location = (
        _from_hub(name) if data == HUB else chain(*map(read_items, set_files(name, data)))
    )
    items = [_checked(name, location, item) for location, item in islice(items_by_location, limit)]
    if not items:
        raise DataError(f"benchmarks: {data}: {name} holds no items")
    return items


def _from_hub(name: str) -> Iterator[tuple[str, Item]]:
    address = SOURCE.format(name=name)
    try:
        with urlopen(address, timeout=_SECONDS) as answer:
            text: str = answer.read().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{name}: {address} cannot be read ({error}); check the network, or set `benchmarks` "
            "to a folder with its items or to builtin"
        ) from None
    for number, line in enumerate(split_lines(text), start=1):
        if line.strip():
            location = f"{address}: line {number}"
            yield location, parse_item(line.encode(), location)


def _checked(name: str, location: str, item: Item) -> Item:
    math_set = MATH_SETS[name]
    for field in math_set.fields:
        if not isinstance(item, dict) or item.get(field) in (None, ""):
            raise DataError(
                f"{location}: field '{field}' is missing; {name} needs {', '.join(math_set.fields)}"
            )
    try:
        math_set.question(item)
        answer = math_set.answer(item)
    except (AttributeError, TypeError) as error:
        raise DataError(
            f"{location}: a field has another type than {name} needs ({error})"
        ) from None
    if not answer:
        raise DataError(f"{location}: field '{math_set.fields[-1]}' holds no answer")
    return item
