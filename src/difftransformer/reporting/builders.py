"""Builders by name: one module of ``reporting.tables`` or ``reporting.figures`` each.

They are imported only when asked for, so that an edit of one remakes only what it makes.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from difftransformer.config.artifacts import Kind
from difftransformer.config.validation import nearest
from difftransformer.errors import ConfigError

_ROOMS: dict[Kind, str] = {"table": "tables", "figure": "figures"}


def builder_names(kind: Kind) -> list[str]:
    """Names of the builders there are, sorted."""
    folder = Path(__file__).with_name(_ROOMS[kind])
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")


def builder_module(kind: Kind, name: str) -> str:
    """Full name of a builder's module, for imports and for the fingerprint of its code.

    Raises:
        ConfigError: there is no such builder; offers the nearest name.
    """
    known = builder_names(kind)
    if name not in known:
        raise ConfigError(
            f"config/artifacts.yaml: {kind}.builder: unknown builder '{name}'{nearest(name, known)}"
        )
    return f"{__package__}.{_ROOMS[kind]}.{name}"


def load_builder(kind: Kind, name: str) -> Callable[..., Any]:
    """Import a builder and return its ``build`` function.

    Raises:
        ConfigError: there is no such builder.
    """
    build: Callable[..., Any] = import_module(builder_module(kind, name)).build
    return build
