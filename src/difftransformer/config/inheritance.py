"""Inheritance between config entries: ``entry = base + overrides``, merged key by key."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from difftransformer.errors import ConfigError, nearest


class Inheriting(Protocol):
    """A config entry that may name another entry of the same file as its base."""

    @property
    def base(self) -> str | None:
        """Name of the entry that this entry extends; None: it extends no entry."""


E = TypeVar("E", bound=Inheriting)


def ancestry(entries: Mapping[str, E], name: str, location: str) -> dict[str, E]:
    """Return the chain of entries by name, from the root base to the entry ``name`` itself.

    Raises:
        ConfigError: A base is unknown, or the bases form a circle.
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
    """Return the chain of names from the first ancestor to ``name`` itself.

    Args:
        entries: Entries by name.
        name: Name of the last entry of the chain.
        location: File and section of the entries, for error messages.
        key: Key that names an entry's parent, for error messages.
        parent: Function that returns the name of an entry's parent, or None for a first ancestor.
        noun: Word for a parent, for error messages.

    Raises:
        ConfigError: A parent is unknown, or the parents form a circle.
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
    """Nested mappings merged in order, which remember the layer that set each key."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._origins: dict[tuple[str, ...], str] = {}
        self._changes: dict[tuple[str, ...], str] = {}

    def add(self, layer: Mapping[str, Any], location: str) -> "Layers":
        """Merge a mapping over the values so far, and return this object.

        Args:
            layer: The mapping.
            location: File and key of the mapping, for error messages.
        """
        self._merge(self.values, layer, location, ())
        return self

    def origin(self, path: tuple[str, ...]) -> str:
        """Return the location that set the value at ``path`` or its nearest parent, or ''.

        For a mapping, the text also names the last location that changed it, since either location
        may be the cause of an error.
        """
        if path in self._changes:
            return f"{self._origins[path]}, changed by {self._changes[path]}"
        for length in range(len(path), 0, -1):
            location = self._origins.get(path[:length])
            if location:
                return location
        return ""

    def origins(self) -> dict[str, str]:
        """Return the location that set each value, by dotted path such as "training.lr"."""
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
    """Yield each value of nested mappings with its dotted path, such as "training.lr"."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
