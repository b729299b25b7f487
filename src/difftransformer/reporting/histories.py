"""Training histories: columns of numbers by step."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from difftransformer.errors import DataError, UserError
from difftransformer.provenance.checksums import verify_file
from difftransformer.provenance.layout import TRAINING, Layout


class Series(NamedTuple):
    """The values of one history column, and the steps at which they were measured."""

    steps: list[int]
    tokens: list[int]
    values: list[float]

    def nearest(self, part: int, parts: int) -> int:
        """Return the index of the value nearest to the fraction ``part`` / ``parts`` of all tokens.

        Of two equally near values it is the first.
        """
        tokens = self.tokens[-1] * part / parts
        return min(range(len(self.tokens)), key=lambda index: abs(self.tokens[index] - tokens))


class Histories:
    """The training histories of runs, read by run and seed."""

    def __init__(self, paths: Mapping[tuple[str, int], Path]) -> None:
        self._paths = paths

    def series(self, run: str, seed: int, column: str) -> Series:
        """Return one column of a run's history.

        Raises:
            UserError: The history is missing; the message names the run and the command.
            DataError: The file does not match its checksum, lacks the column, or has a value that
                is not a number.
        """
        path = self._paths.get((run, seed))
        if path is None:
            raise UserError(
                f"no history of run '{run}' with seed {seed}; build it with `snakemake "
                f"{Layout('results', '<scale>').history(run, seed)}`"
            )
        rows, columns = _read(path)
        if column not in columns:
            available = ", ".join(columns) or "none"
            raise DataError(
                f"{path}: has no column '{column}' (columns: {available}); rerun the training"
            )
        return _series(path, rows, column)

    def columns(self, run: str, seed: int) -> dict[str, Series]:
        """Return all columns of a run's history except step and tokens; empty without a history.

        Raises:
            DataError: The file is invalid, as for `series`.
        """
        path = self._paths.get((run, seed))
        if path is None or not path.is_file():
            return {}
        rows, columns = _read(path)
        return {name: _series(path, rows, name) for name in columns if name not in _INDEX_COLUMNS}


_INDEX_COLUMNS = ("step", "tokens")


def _read(path: Path) -> tuple[list[dict[str, str]], list[str]]:
    try:
        verify_file(path, path.with_name(TRAINING))
        reader = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
        return list(reader), list(reader.fieldnames or [])
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; rerun the training") from None


def _series(path: Path, rows: list[dict[str, str]], column: str) -> Series:
    measured = [row for row in rows if row[column]]
    try:
        return Series(
            [int(row["step"]) for row in measured],
            [int(row["tokens"]) for row in measured],
            [float(row[column]) for row in measured],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: damaged ({error}); delete it and rerun the training") from None
