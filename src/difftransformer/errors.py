"""Errors meant for users: one readable line that names the thing and the fix."""

from collections.abc import Iterator
from contextlib import contextmanager


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
