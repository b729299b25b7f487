"""Tidy csv: one line a number, full precision, with the jobs behind it."""

import csv
import io

from difftransformer.reporting.document import Cell, TableDocument

HEADER = (
    "artifact", "row", "column", "value", "std", "ci_low", "ci_high", "n", "paper_value", "run_ids",
)  # fmt: skip


def to_csv(table: TableDocument) -> str:
    """Write the cells in the order of sections, rows and columns; an absent number is empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(HEADER)
    for section in table.sections:
        for row in section.rows:
            for column in section.columns:
                cell = section.cell(row.run, column.id)
                if cell is not None:
                    writer.writerow(_line(table.artifact, cell))
    return buffer.getvalue()


def _line(artifact: str, cell: Cell) -> list[str]:
    numbers = (cell.value, cell.std, cell.ci_low, cell.ci_high)
    return [
        artifact,
        cell.row,
        cell.column,
        *(_exact(number) for number in numbers),
        str(cell.n),
        _exact(cell.paper_value),
        ";".join(cell.job_ids()),
    ]


def _exact(number: float | None) -> str:
    return "" if number is None else repr(number)
