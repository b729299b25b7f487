"""Reading YAML strictly: safe loading, no duplicate keys, errors that name file and line."""

from pathlib import Path
from typing import Any

import yaml

from difftransformer.errors import ConfigError


class _StrictLoader(yaml.SafeLoader):
    """The safe loader, refusing a key that stands twice in one mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    problem=f"key {key!r} is not text; put it in quotes",
                    problem_mark=key_node.start_mark,
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"key '{key}' stands twice; remove one",
                    problem_mark=key_node.start_mark,
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Raises:
        ConfigError: If the file is missing, unreadable, not YAML, or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; restore it or name another folder") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return parse_mapping(text, str(path))


def parse_mapping(text: str, name: str) -> dict[str, Any]:
    """Return the mapping that YAML text holds; ``name`` stands for it in errors."""
    try:
        content = yaml.load(text, Loader=_StrictLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{name}: {_one_line(error)}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{name}: must be a mapping of keys, got {type(content).__name__}")
    return content


def _one_line(error: BaseException) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"not valid YAML: {' '.join(str(error).split())}"
    mark = error.problem_mark
    where = f"line {mark.line + 1}: " if mark else ""
    return f"{where}{error.problem or error.context or 'not valid YAML'}"
