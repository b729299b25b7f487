"""Errors for users, whose message is one readable line with the problem and the fix."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")


class UserError(Exception):
    """A user's mistake. Commands print its message and exit with status 2."""


class ConfigError(UserError):
    """Invalid configuration; the message has file, key, value and allowed values."""


class DataError(UserError):
    """A missing, empty or damaged corpus, tokenizer or shard."""


class CheckpointError(UserError):
    """A missing, truncated or incompatible checkpoint or model folder."""


class BackendError(UserError):
    """An attention backend, device or precision that is not available here."""


class WrongCodeError(BackendError):
    """A compiler has generated code for this GPU whose results may be wrong."""


class DivergenceError(UserError):
    """A training loss that became NaN, infinite or unreasonably large."""


@contextmanager
def data_of(dataset: str) -> Iterator[None]:
    """Context manager: prefix the message of a `DataError` with the name of the dataset."""
    try:
        yield
    except DataError as error:
        raise DataError(f"dataset {dataset}: {error}") from None


def in_one_line(error: Exception) -> str:
    """Return the type and the first line of another library's exception, up to 200 characters."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"


MAX_NAMES = 20
"""Maximum number of allowed names that an error message lists."""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return a hint such as ``; did you mean 'lr'?``, or one that lists the allowed names."""
    names = sorted(allowed)
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    if close := closest(str(name), names):
        return f"; did you mean '{close}'?"
    return f"; allowed: {', '.join(names[:MAX_NAMES])}{more}" if names else ""


def closest(name: str, names: Iterable[str]) -> str | None:
    """Return the name among ``names`` that is most similar to ``name``; None if none is similar."""
    return next(iter(get_close_matches(name, sorted(names), n=1, cutoff=0.6)), None)


def lookup(mapping: Mapping[str, T], name: str, what: str, location: str) -> T:
    """Return ``mapping[name]``.

    Args:
        mapping: Values by name.
        name: The name.
        what: Kind of name for error messages, such as "run".
        location: File and key path that contain the name, for error messages.

    Raises:
        ConfigError: The name is unknown; the message offers the most similar name.
    """
    try:
        return mapping[name]
    except (KeyError, TypeError):  # TypeError: a list or a mapping where a name belongs
        raise ConfigError(f"{location}: unknown {what} '{name}'{nearest(name, mapping)}") from None
