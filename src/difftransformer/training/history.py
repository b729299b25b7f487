"""The history of a run: what training measured by step, nothing that depends on the clock."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from difftransformer.provenance.atomic import write_text

Row = dict[str, float | int]
"""Column -> value of one step; a column that was not measured at that step is absent."""

FIRST_COLUMNS = ("step", "tokens", "loss", "lr", "grad_norm", "validation_loss")


class History:
    """Rows by ascending step. Equal runs give equal bytes, whether or not they were resumed."""

    def __init__(self, rows: Sequence[Mapping[str, float | int]] = ()) -> None:
        self.rows: list[Row] = [dict(row) for row in rows]

    def append(self, row: Row) -> None:
        """Add the row of a later step."""
        assert not self.rows or row["step"] > self.rows[-1]["step"], "steps must ascend"
        self.rows.append(row)

    def last(self, column: str) -> float | None:
        """Return the newest value of ``column``; None if it was never measured."""
        return next((row[column] for row in reversed(self.rows) if column in row), None)

    def first_reaching(self, column: str, threshold: float) -> int | None:
        """Return the first step with ``column`` at least ``threshold``; None if there is none."""
        reached = (row["step"] for row in self.rows if column in row and row[column] >= threshold)
        step = next(reached, None)
        return None if step is None else int(step)

    def write_csv(self, path: Path) -> None:
        """Write ``path`` whole; floats as repr, so that reading gives the same numbers back."""
        measured = {column for row in self.rows for column in row}
        columns = [*FIRST_COLUMNS, *sorted(measured.difference(FIRST_COLUMNS))]
        lines = [",".join(columns)]
        lines += [
            ",".join(repr(row[column]) if column in row else "" for column in columns)
            for row in self.rows
        ]
        write_text(path, "\n".join(lines) + "\n")
