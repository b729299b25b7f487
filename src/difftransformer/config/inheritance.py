"""Inheritance between entries: ``entry = base + overrides``, merged key by key."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from difftransformer.errors import ConfigError, nearest


class Inheriting(Protocol):
    """An entry that may name another entry of the same file as its base."""

    @property
    def base(self) -> str | None:
        """Name of the entry it starts from."""


E = TypeVar("E", bound=Inheriting)


def ancestry(entries: Mapping[str, E], name: str, location: str) -> dict[str, E]:
    """Return the chain of entries by name, from the root base down to ``name`` itself.

    Raises:
        ConfigError: If a base is unknown or the bases form a circle.
    """
    names = lineage(entries, name, location, "base", lambda entry: entries[entry].base)
    return {member: entries[member] for member in names}


def lineage(
    entries: Mapping[str, Any],
    name: str,
    location: str,
    key: str,
    parent: Callable[[str], str | None],
    noun: str = "base",
) -> list[str]:
    """Return the names from the first ancestor down to ``name`` itself.

    ``parent`` gives the name of an entry's parent, None for a first one. For errors: ``location``
    is file and section, ``key`` what names the parent there, ``noun`` what a parent is.

    Raises:
        ConfigError: If a parent is unknown or the parents form a circle.
    """
    visited: list[str] = []
    current: str | None = name
    while current is not None:
        if not isinstance(current, str):
            raise ConfigError(
                f"{location}.{visited[-1]}.{key}: needs the name of a {noun}, got {current!r}"
            )
        if current in visited:
            circle = " -> ".join([*visited, current])
            raise ConfigError(f"{location}.{name}.{key}: {noun}s form a circle: {circle}")
        if current not in entries:
            owner = visited[-1] if visited else name
            raise ConfigError(
                f"{location}.{owner}.{key}: unknown {noun} '{current}'{nearest(current, entries)}"
            )
        visited.append(current)
        current = parent(current)
    return visited[::-1]


class Layers:
    """Nested mappings merged in order, remembering which layer set each key."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._origins: dict[tuple[str, ...], str] = {}
        self._changes: dict[tuple[str, ...], str] = {}

    def add(self, layer: Mapping[str, Any], location: str) -> "Layers":
        """Merge a layer over the values so far; ``location`` is its file and key, for errors."""
        self._merge(self.values, layer, location, ())
        return self

    def origin(self, path: tuple[str, ...]) -> str:
        """Return the location that set the value at ``path`` or its nearest parent, or ''.

        For a mapping, also the last location that changed it: either may be the cause of an error.
        """
        if path in self._changes:
            return f"{self._origins[path]}, changed by {self._changes[path]}"
        for length in range(len(path), 0, -1):
            location = self._origins.get(path[:length])
            if location:
                return location
        return ""

    def origins(self) -> dict[str, str]:
        """Return the location that set each value, by paths as in `flat`."""
        return {".".join(path): location for path, location in self._origins.items()}

    def _merge(
        self, into: dict[str, Any], layer: Mapping[str, Any], location: str, path: tuple[str, ...]
    ) -> None:
        for key, value in layer.items():
            nested_path, nested = (*path, key), isinstance(value, Mapping)
            if nested and isinstance(into.get(key), dict):
                self._changes[nested_path] = location
            else:
                self._origins[nested_path] = location
                into[key] = {} if nested else value
            if nested:
                self._merge(into[key], value, location, nested_path)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over the values of nested mappings, with the path of each, as in "training.lr"."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
