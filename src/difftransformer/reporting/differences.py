"""Columns of paired differences: a row minus the one it is compared with, seed by seed."""

from collections.abc import Sequence

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.reporting.cells import DIFFERENCE, Place, difference_cell
from difftransformer.reporting.document import Cell


def paired_differences(
    rows: Sequence[RowSlice],
    columns: Sequence[str],
    cells: Sequence[Cell],
    decimals: int,
    reference: str = "",
) -> list[Cell]:
    """Return the cells of the differences, of the rows that are compared with another.

    A published difference stands beside ours where both numbers are published.

    Args:
        rows: Rows of a section.
        columns: Ids of the columns to subtract; the differences' own end in `DIFFERENCE`.
        cells: Cells of these rows and columns, and maybe others.
        decimals: Decimals of a difference.
        reference: What the differences' own ids end in behind `DIFFERENCE`.
    """
    at = {(cell.row, cell.column): cell for cell in cells}
    found = []
    for row in rows:
        if row.against is None:
            continue
        for column in columns:
            ours, theirs = at[row.run, column], at[row.against, column]
            published = None
            if ours.paper_value is not None and theirs.paper_value is not None:
                published = ours.paper_value - theirs.paper_value
            place = Place(row.run, column + DIFFERENCE + reference)
            found.append(difference_cell(place, ours, theirs, decimals, published))
    return found
