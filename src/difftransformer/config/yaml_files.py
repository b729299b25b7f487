"""Strict reading of YAML: safe loading, no duplicate keys, errors that name file and line."""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

from difftransformer.config.validation import validate
from difftransformer.errors import ConfigError

T = TypeVar("T")

MOST_VALUES = 100_000
"""Maximum number of values in a file; nested aliases could expand to billions."""

DEEPEST = 40
"""Maximum nesting depth of a file."""

_ODD_NUMBER = re.compile(r"[-+]?(0[0-9_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")
"""Pattern of numbers that YAML 1.1 reads as octal, or as hours and minutes."""


def yaml_files(folder: Path) -> dict[str, Path]:
    """Return the paths of the YAML files in a folder by their names without suffix.

    Raises:
        ConfigError: A file has the suffix .yml, which is not read.
    """
    for path in sorted(folder.glob("*.yml")):
        raise ConfigError(f"{path}: files end in .yaml here; rename it to {path.stem}.yaml")
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


class _Strict(yaml.constructor.SafeConstructor):
    """YAML constructor that refuses duplicate keys, ambiguous numbers and exploding aliases."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()  # type: ignore[misc]
        if node is not None:
            _count(node, {}, 0)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[Any] = set()
        for key_node, value_node in node.value:
            is_merge = key_node.tag == "tag:yaml.org,2002:merge"
            key = "<<" if is_merge else self.construct_object(key_node, deep=True)
            if type(key) is int and node.flow_style and value_node.value == "":
                raise _fault(
                    key_node,
                    f"{key_node.value!r} behind a comma has no value; a decimal number is "
                    "written with a point, a list in brackets",
                )
            if not isinstance(key, str):
                raise _fault(
                    key_node, f"key {key_node.value!r} is read as {key!r}; put it in quotes"
                )
            if key in keys:
                raise _fault(key_node, f"key '{key}' stands twice; remove one")
            keys.add(key)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """Return the number in a node; refuse one that YAML reads differently than it looks."""
        integer = node.tag.endswith(":int")
        try:
            number = self.construct_yaml_int(node) if integer else self.construct_yaml_float(node)
        except ValueError:
            raise _fault(node, f"{str(node.value)[:40]!r} cannot be read as a number") from None
        if _ODD_NUMBER.fullmatch(node.value):
            raise _fault(node, f"YAML reads {node.value} as {number}; write that, or use quotes")
        return number


for _kind in ("int", "float"):
    _Strict.add_constructor(f"tag:yaml.org,2002:{_kind}", _Strict.construct_number)  # type: ignore[type-var]


class _StrictLoader(_Strict, yaml.SafeLoader):
    pass


_FastLoader: Any = _StrictLoader
"""YAML loader with libyaml's parser if PyYAML has it. The composer is in Python, since deep nesting
crashes the composer in C."""

if yaml.__with_libyaml__:
    from yaml.cyaml import CParser  # type: ignore[attr-defined]

    class _LibyamlLoader(_Strict, yaml.composer.Composer, CParser, yaml.resolver.Resolver):
        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            yaml.composer.Composer.__init__(self)
            _Strict.__init__(self)
            yaml.resolver.Resolver.__init__(self)

    _FastLoader = _LibyamlLoader


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Raises:
        ConfigError: The file is missing, unreadable, not YAML, or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; restore it or name another folder") from None
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise ConfigError(
            f"{path}: cannot be read: {reason}; a readable YAML file is needed"
        ) from None
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ConfigError(
            f"{path}: byte {error.start} is 0x{byte:02x}, which is not UTF-8; save it as UTF-8"
        ) from None
    return parse_mapping(text, str(path))


def validate_yaml(kind: type[T], path: Path) -> T:
    """Return the content of a YAML file as a validated instance of a type.

    Raises:
        ConfigError: The file cannot be read (see `read_yaml`), or is not valid (see `validate`).
    """
    return validate(kind, read_yaml(path), str(path))


def parse_mapping(text: str, name: str) -> dict[str, Any]:
    """Return the mapping in a YAML text.

    Args:
        text: The YAML text.
        name: Name of the text for error messages.

    Raises:
        ConfigError: The text is not YAML, or not a mapping.
    """
    content = parse_value(text, name)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{name}: must be a mapping of keys, got {type(content).__name__}")
    return content


def parse_value(text: str, name: str) -> Any:
    """Return the value of a YAML text.

    Args:
        text: The YAML text.
        name: Name of the text for error messages.

    Raises:
        ConfigError: The text is not YAML.
    """
    with suppress(RecursionError, yaml.YAMLError, ValueError):  # reported by the loader below
        return deepcopy(_parse(text))
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except RecursionError:
        raise ConfigError(f"{name}: nested deeper than {DEEPEST} levels; flatten it") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{name}: {_one_line(error)}") from None


@lru_cache(maxsize=512)
def _parse(text: str) -> Any:
    """Return the value of a YAML text, cached since processes load a configuration repeatedly."""
    return yaml.load(text, Loader=_FastLoader)


def _count(node: yaml.Node, counts: dict[int, int], depth: int) -> int:
    """Return the number of values below a node with its aliases expanded.

    The number of each node is cached in ``counts``.
    """
    if depth > DEEPEST:
        raise _fault(node, f"nested deeper than {DEEPEST} levels; flatten it")
    if id(node) in counts:
        if counts[id(node)] < 0:
            raise _fault(node, "an anchor contains itself; write the values out")
        return counts[id(node)]
    counts[id(node)] = -1
    total = 1
    if isinstance(node, yaml.CollectionNode):
        for entry in node.value:
            for part in entry if isinstance(entry, tuple) else (entry,):
                total += _count(part, counts, depth + 1)
    if total > MOST_VALUES:
        raise _fault(node, f"its aliases expand to over {MOST_VALUES} values; write them out")
    counts[id(node)] = total
    return total


def _fault(node: yaml.Node, problem: str) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)


def _one_line(error: BaseException) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"not valid YAML: {' '.join(str(error).split())}"
    mark = error.problem_mark
    location = f"line {mark.line + 1}: " if mark else ""
    hint = "; indent with spaces" if "'\\t'" in (error.problem or "") else ""
    return f"{location}{error.problem or error.context or 'not valid YAML'}{hint}"


def as_settings(settings: Mapping[str, Any]) -> list[str]:
    """Return keys of config.yaml as arguments ``key=value`` for --config, without those of None."""
    return [f"{key}={_as_text(value)}" for key, value in settings.items() if value is not None]


def _as_text(value: Any) -> str:
    """Return a value as YAML text that parses to the value; strings unquoted where possible."""
    with suppress(ConfigError):
        if isinstance(value, str) and parse_value(value, "") == value:
            return value
    return json.dumps(value, separators=(",", ":"))
