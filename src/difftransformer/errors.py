"""Errors meant for users: one readable line that names the thing and the fix."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")


class UserError(Exception):
    """A mistake a user can mend; the command line prints it as one line and exits with status 2."""


class ConfigError(UserError):
    """Configuration that cannot be used: names file, key path, what was found, what is allowed."""


class DataError(UserError):
    """A corpus, tokenizer or shard that is missing, empty or damaged."""


class CheckpointError(UserError):
    """A checkpoint or an exported model that is missing, truncated or does not fit."""


class BackendError(UserError):
    """An attention backend, device or precision that was asked for and is not there."""


class WrongCodeError(BackendError):
    """A compiler has made code for this card whose numbers may be wrong."""


class DivergenceError(UserError):
    """A training loss that became NaN or infinite, or left every reasonable range."""


@contextmanager
def data_of(dataset: str) -> Iterator[None]:
    """Name the dataset in what is wrong with its data, where only the caller knows the name."""
    try:
        yield
    except DataError as error:
        raise DataError(f"dataset {dataset}: {error}") from None


def in_one_line(error: Exception) -> str:
    """Name an error of a library in one line."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"


MOST_NAMES = 20
"""Allowed names that an error lists."""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return a hint such as ``; did you mean 'lr'?``, or the allowed names when none is close."""
    names = sorted(allowed)
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    if close := closest(str(name), names):
        return f"; did you mean '{close}'?"
    return f"; allowed: {', '.join(names[:MOST_NAMES])}{more}" if names else ""


def closest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that a misspelt one most likely means; None: none is close."""
    return next(iter(get_close_matches(name, sorted(names), n=1, cutoff=0.6)), None)


def lookup(mapping: Mapping[str, T], name: str, what: str, where: str) -> T:
    """Return ``mapping[name]``.

    Raises:
        ConfigError: If the name is unknown; offers the nearest one.
    """
    try:
        return mapping[name]
    except (KeyError, TypeError):  # TypeError: a list or a mapping where a name belongs
        raise ConfigError(f"{where}: unknown {what} '{name}'{nearest(name, mapping)}") from None
