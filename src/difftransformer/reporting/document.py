"""A finished table as data: what every format is written from, and the report reads back."""

from typing import TYPE_CHECKING

from pydantic import Field

from difftransformer.config.base import Settings
from difftransformer.provenance.result import PerItemScores

if TYPE_CHECKING:
    from pandas import DataFrame


class Column(Settings):
    """A column; ``csv_only`` columns are in the csv and not in the readable forms."""

    id: str
    header: str
    csv_only: bool = False


class SeedValue(Settings):
    """What one seed gave, and the jobs that found it."""

    seed: int
    value: float | None
    text: str
    job_ids: list[str]
    for_all_seeds: bool = Field(
        default=False, exclude=True, description="Of a pretrained model: beside every seed"
    )
    censored_at: float | None = Field(
        default=None, exclude=True, description="What an absent value is known to exceed"
    )
    lower_bound: float | None = Field(
        default=None,
        exclude=True,
        description="Step of the last probe before the event: the time is later",
    )
    per_item: PerItemScores | None = Field(
        default=None, exclude=True, repr=False, description="The value by what was asked"
    )


class Cell(Settings):
    """One number of one row: over seeds, with its published twin and the jobs behind it.

    ``value`` is None where the number does not exist, such as the steps to an event that most
    seeds never reached; ``text`` then says so.
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
        default="", description="What `overrides` changed of the runs behind it; empty: nothing"
    )
    each: str = Field(
        default="seed", description="What `seeds` are, one of them: a seed, or a process"
    )

    def job_ids(self) -> list[str]:
        """Jobs behind the cell, sorted, each once."""
        return sorted({job for seed in self.seeds for job in seed.job_ids})

    def by_seed(self) -> dict[int, float]:
        """Values by seed, without the seeds that have none."""
        return {seed.seed: seed.value for seed in self.seeds if seed.value is not None}


class Row(Settings):
    """A row's run and name."""

    run: str
    label: str


class Section(Settings):
    """Rows that share their columns, and what is to be said about how they were measured."""

    title: str
    columns: list[Column]
    rows: list[Row]
    cells: list[Cell]
    notes: list[str] = Field(default=[])
    proxy: bool = Field(
        default=False, description="Whether the published numbers beside ours are of something else"
    )

    def cell(self, row: str, column: str) -> Cell | None:
        """Return the cell at a row and a column, if there is one."""
        return next((c for c in self.cells if c.row == row and c.column == column), None)

    def visible(self) -> list[Column]:
        """Columns of the readable forms."""
        return [column for column in self.columns if not column.csv_only]


class Published(Settings):
    """Where the published numbers beside ours come from."""

    title: str
    source: str
    scale: str
    notes: list[str]


class TableDocument(Settings):
    """A whole table."""

    artifact: str
    title: str
    caption: str
    scale: str
    seeds: list[int]
    sections: list[Section]
    published: Published | None = None
    notes: list[str] = Field(default=[])

    def cells(self) -> list[Cell]:
        """Cells of all sections, in their order."""
        return [cell for section in self.sections for cell in section.cells]

    def find(self, row: str, column: str) -> Cell | None:
        """Return the cell at a row and a column of whichever section has it."""
        return next((c for c in self.cells() if c.row == row and c.column == column), None)

    def frame(self) -> "DataFrame":
        """Cells as a tidy frame in the order of sections, rows and columns; absent numbers: None.

        Columns: artifact, row, column, value, std, ci_low, ci_high, n, paper_value, run_ids; and
        overrides, where `overrides` changed a run.
        """
        import pandas as pd

        numbers = ("value", "std", "ci_low", "ci_high", "n", "paper_value")
        changed = any(cell.overrides for cell in self.cells())
        found = [
            {"artifact": self.artifact, "row": cell.row, "column": cell.column}
            | {name: getattr(cell, name) for name in numbers}
            | {"run_ids": ";".join(cell.job_ids())}
            | ({"overrides": cell.overrides} if changed else {})
            for section in self.sections
            for row in section.rows
            for column in section.columns
            if (cell := section.cell(row.run, column.id)) is not None
        ]
        return pd.DataFrame(found, dtype=object)
