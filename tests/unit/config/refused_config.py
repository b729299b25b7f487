"""Damage one file of config/ and check that the error is one line with its location."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from difftransformer.errors import UserError
from difftransformer.planning.plan import Plan

Change = Callable[[dict[str, Any]], None]
Case = tuple[str, Change, Sequence[str]]
"""A file, what is changed in it, and what the line says."""


def put(*path: str | int, value: Any) -> Change:
    def change(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = value

    return change


def spoil(name: str, change: Change, config_folder: Path) -> None:
    path = config_folder / name
    content = yaml.load(path.read_text(), yaml.CSafeLoader)
    change(content)
    path.write_text(yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False))


def assert_one_line(case: Case, config_folder: Path) -> None:
    name, change, fragments = case
    spoil(name, change, config_folder)
    with pytest.raises(UserError) as caught:
        Plan.load(config_folder)
    line = str(caught.value)
    assert "\n" not in line
    for part in fragments:
        assert part in line, line
