"""Sections whose columns are metrics: means over seeds and paired differences, of a tidy frame."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from difftransformer.config.artifact_slices import FamilySlice, RowSlice
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import (
    DIFFERENCE,
    FACTS,
    Place,
    fact_cell,
    mean_cells,
    paired_differences,
    seed_values,
)
from difftransformer.reporting.collect import metric
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Metric:
    """One column.

    Attributes:
        id: Id of the column, also in claims and published tables.
        header: What stands above it.
        of: Metric of a result, the id where left out; or what gives its number, None: undefined.
        remark: What a reader who opens a cell is told beside a seed's number.
        hidden: Whether the column is in the csv alone.
        compared: Whether its paired difference is shown, too, where rows are compared.
    """

    id: str
    header: str
    of: str | Callable[[Result], float | None] | None = None
    remark: Callable[[Result], str] | None = None
    hidden: bool = False
    compared: bool = False

    def value(self, result: Result) -> float | None:
        """Number of one result.

        Raises:
            UserError: It was not measured.
        """
        return self.of(result) if callable(self.of) else metric(result, self.of or self.id)


def metric_section(
    view: View[Any],
    metrics: Sequence[Metric],
    *,
    decimals: int,
    notes: Sequence[str],
    facts: bool = False,
    show_differences: bool = True,
) -> Section:
    """Make a section of means over seeds, and of paired differences where rows are compared.

    Args:
        view: The section.
        metrics: Its columns, numbers of the section's suite.
        decimals: Decimals of all numbers.
        notes: What is to be said about how they were measured.
        facts: Whether columns that say what a row is stand before them.
        show_differences: Whether a note says what Δ is.

    Raises:
        UserError: a result is missing or lacks a metric.
    """
    cells = mean_cells(metric_frame(view, metrics, decimals), decimals, view.paper)
    cells += paired_differences(view.rows, [one.id for one in metrics], cells, decimals)
    columns = [Column(id=one.id, header=one.header, tidy_only=one.hidden) for one in metrics]
    if facts:
        columns = [*fact_columns(), *columns]
        cells = [*fact_cells(view), *cells]
    if view.compared:
        columns += [
            Column(id=one.id + DIFFERENCE, header=f"Δ {one.header}", tidy_only=not one.compared)
            for one in metrics
        ]
        if show_differences:
            notes = [
                *notes,
                f"Δ, all of them in the csv: paired difference over seeds, {view.compared_with()}.",
            ]
    return section_of(view, columns, cells, notes)


def section_of(
    view: View[Any],
    columns: Sequence[Column],
    cells: Sequence[Cell],
    notes: Sequence[str] = (),
    *,
    title: str | None = None,
    rows: Sequence[RowSlice | FamilySlice] | None = None,
) -> Section:
    """Make a section of columns and cells, with the view's title and rows where none are given."""
    return Section(
        title=view.title if title is None else title,
        columns=list(columns),
        rows=[Row(run=row.run, label=row.label) for row in (view.rows if rows is None else rows)],
        cells=list(cells),
        notes=list(notes),
    )


def metric_frame(view: View[Any], metrics: Sequence[Metric], decimals: int) -> "DataFrame":
    """Tidy frame of metrics: row, column, seed, value, text, job_ids.

    Raises:
        UserError: a result is missing or lacks a metric.
    """
    import pandas as pd

    found = [
        {
            "row": row.run,
            "column": one.id,
            "seed": seed.seed,
            "value": seed.value,
            "text": seed.text if one.remark is None else f"{seed.text} {one.remark(result)}",
            "job_ids": seed.job_ids,
        }
        for row in view.rows
        for results in [view.evaluated(row)]
        for one in metrics
        for seed, result in zip(
            seed_values([(result, one.value(result)) for result in results], decimals),
            results,
            strict=True,
        )
    ]
    return pd.DataFrame(found, dtype=object)  # None stays None


def fact_columns() -> list[Column]:
    """Columns that say what a row is."""
    return [Column(id=key, header=header) for key, header in FACTS.items()]


def fact_cells(view: View[Any]) -> list[Cell]:
    """Cells that say what each row is."""
    return [
        fact_cell(Place(row.run, key), row.facts.get(key), view.trained(row), view.paper)
        for row in view.rows
        for key in FACTS
    ]
