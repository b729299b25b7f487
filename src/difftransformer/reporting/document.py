"""A finished table as data, from which every format is written."""

from typing import TYPE_CHECKING

from pydantic import Field

from difftransformer.config.base import Settings
from difftransformer.provenance.result import PerItemScores

if TYPE_CHECKING:
    from pandas import DataFrame


class Column(Settings):
    """A column of a table; ``csv_only`` columns are written to the CSV file only."""

    id: str
    header: str
    csv_only: bool = False


class SeedValue(Settings):
    """The value of one seed, and the ids of the jobs that computed it."""

    seed: int
    value: float | None
    text: str
    job_ids: list[str]
    for_all_seeds: bool = Field(
        default=False,
        exclude=True,
        description="Whether it holds for every seed, as for pretrained models",
    )
    censored_at: float | None = Field(
        default=None, exclude=True, description="Lower bound of a missing time of an event"
    )
    lower_bound: float | None = Field(
        default=None,
        exclude=True,
        description="Last probe before the event, a lower bound of its time",
    )
    per_item: PerItemScores | None = Field(
        default=None, exclude=True, repr=False, description="The value as a sum over items"
    )


class Cell(Settings):
    """A number in a table, computed over the seeds of a row.

    It has a published value, if there is one, and the ids of the jobs that computed it.

    ``value`` is None if the number is undefined, such as the steps to an event that most seeds
    did not reach.
    """

    row: str
    column: str
    text: str
    value: float | None = None
    std: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    n: int = 0
    paper_value: float | None = None
    paper_text: str | None = None
    seeds: list[SeedValue] = Field(default=[])
    overrides: str = Field(
        default="", description="Settings of its runs that are overridden; empty: none"
    )
    each: str = Field(default="seed", description="Kind of an item of `seeds`: seed or process")

    def job_ids(self) -> list[str]:
        """Return the ids of the jobs that computed the cell, sorted, without duplicates."""
        return sorted({job for seed in self.seeds for job in seed.job_ids})

    def by_seed(self) -> dict[int, float]:
        """Return the cell's values by seed, without missing values."""
        return {seed.seed: seed.value for seed in self.seeds if seed.value is not None}


class Row(Settings):
    """A row of a table: the name of its run, and its label."""

    run: str
    label: str


class Section(Settings):
    """A part of a table: rows with the same columns, and notes on how they were measured."""

    title: str
    columns: list[Column]
    rows: list[Row]
    cells: list[Cell]
    notes: list[str] = Field(default=[])
    proxy: bool = Field(
        default=False,
        description="Whether the items are a synthetic proxy for those of the published numbers",
    )

    def cell(self, row: str, column: str) -> Cell | None:
        """Return the cell at a row and a column, or None if there is none."""
        return next((c for c in self.cells if c.row == row and c.column == column), None)

    def visible(self) -> list[Column]:
        """Return the columns that are shown in all formats, without the csv-only ones."""
        return [column for column in self.columns if not column.csv_only]


class Published(Settings):
    """The source of a table's published numbers."""

    title: str
    source: str
    scale: str
    notes: list[str]


class TableDocument(Settings):
    """A finished table with all its sections."""

    artifact: str
    title: str
    caption: str
    scale: str
    seeds: list[int]
    sections: list[Section]
    published: Published | None = None
    notes: list[str] = Field(default=[])

    def cells(self) -> list[Cell]:
        """Return the cells of all sections of the table, in order."""
        return [cell for section in self.sections for cell in section.cells]

    def find(self, row: str, column: str) -> Cell | None:
        """Return the first cell at a row and a column in any section, or None."""
        return next((c for c in self.cells() if c.row == row and c.column == column), None)

    def frame(self) -> "DataFrame":
        """Return the table as a tidy DataFrame, one line per cell.

        Lines are in the order of sections, rows and columns. Columns: artifact, row, column, value,
        std, ci_low, ci_high, n, paper_value, run_ids; and overrides, if any cell has overridden
        settings. Missing numbers are None.
        """
        import pandas as pd

        numbers = ("value", "std", "ci_low", "ci_high", "n", "paper_value")
        has_overrides = any(cell.overrides for cell in self.cells())
        lines = [
            {"artifact": self.artifact, "row": cell.row, "column": cell.column}
            | {name: getattr(cell, name) for name in numbers}
            | {"run_ids": ";".join(cell.job_ids())}
            | ({"overrides": cell.overrides} if has_overrides else {})
            for section in self.sections
            for row in section.rows
            for column in section.columns
            if (cell := section.cell(row.run, column.id)) is not None
        ]
        return pd.DataFrame(lines, dtype=object)
