"""``config.yaml`` with what the command line changes of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from difftransformer.config.inheritance import Layers
from difftransformer.config.project import ProjectConfig
from difftransformer.config.validation import nearest, validate
from difftransformer.config.yaml_files import parse_value, read_yaml
from difftransformer.errors import ConfigError


def load_project(folder: Path, overrides: Mapping[str, Any]) -> ProjectConfig:
    """Return the settings of ``folder``/config.yaml with ``overrides`` in place of its keys.

    Raises:
        ConfigError: An unknown key, or a value that cannot be used.
    """
    place = f"{folder / 'config.yaml'}"
    known = set(ProjectConfig.model_fields)
    for key in overrides:
        if key not in known:
            raise ConfigError(f"--config {key}: unknown key{nearest(key, known)}")
    layers = Layers().add(read_yaml(folder / "config.yaml"), place)
    layers.add({key: _plain(key, value) for key, value in overrides.items()}, "--config")
    project: ProjectConfig = validate(ProjectConfig, layers.values, place, layers.origin)
    return project


def _plain(key: str, value: Any) -> Any:
    """Read a value given on a command line as YAML where it arrives as text."""
    if not isinstance(value, str):
        return value
    return parse_value(value, f"--config {key}")
