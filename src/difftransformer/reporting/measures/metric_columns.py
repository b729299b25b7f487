"""Sections whose columns are metrics of one suite: means over seeds and paired differences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import (
    DIFFERENCE,
    Paper,
    Place,
    difference_cell,
    mean_cell,
    seed_values,
)
from difftransformer.reporting.collect import Results
from difftransformer.reporting.conditions import compared_with
from difftransformer.reporting.document import Cell, Column, Row, Section, SeedValue


@dataclass(frozen=True)
class MetricColumn:
    """One column.

    Attributes:
        id: Id of the column, also in claims and published tables.
        header: What stands above it.
        value: Number of one result; None where it is undefined.
        remark: What a reader who opens a cell is told beside a seed's number.
        hidden: Whether the column is in the csv alone.
    """

    id: str
    header: str
    value: Callable[[Result], float | None]
    remark: Callable[[Result], str] | None = None
    hidden: bool = False


def evaluated(
    artifact: ArtifactSlice, part: SectionSlice, rows: Sequence[RowSlice], results: Results
) -> list[Result]:
    """Results of the section's suite for some rows and all seeds."""
    return [
        results.evaluation(part.suites[0], row.run, seed) for row in rows for seed in artifact.seeds
    ]


def metric_section(
    artifact: ArtifactSlice,
    part: SectionSlice,
    results: Results,
    columns: Sequence[MetricColumn],
    *,
    decimals: int,
    notes: list[str],
) -> Section:
    """Make the section; differences to the row compared with are in the csv alone.

    Raises:
        UserError: a result is missing or lacks a metric.
    """
    paper = Paper(artifact.paper)
    cells = [
        mean_cell(Place(row.run, column.id), seeds, decimals, paper)
        for row in part.rows
        for found in [evaluated(artifact, part, [row], results)]
        for column in columns
        for seeds in [_seeds(column, found, decimals)]
    ]
    compared = any(row.against for row in part.rows)
    shown = [Column(id=one.id, header=one.header, tidy_only=one.hidden) for one in columns]
    if compared:
        shown += [
            Column(id=one.id + DIFFERENCE, header=f"Δ {one.header}", tidy_only=True)
            for one in columns
        ]
        notes = [*notes, f"The csv also has paired differences over seeds: {compared_with(part)}."]
    return Section(
        title=part.title,
        columns=shown,
        rows=[Row(run=row.run, label=row.label) for row in part.rows],
        cells=cells + _differences(part, cells, columns, decimals),
        notes=notes,
    )


def _seeds(column: MetricColumn, found: Sequence[Result], decimals: int) -> list[SeedValue]:
    seeds = seed_values([(result, column.value(result)) for result in found], decimals)
    if column.remark is None:
        return seeds
    return [
        seed.model_copy(update={"text": f"{seed.text} {column.remark(result)}"})
        for seed, result in zip(seeds, found, strict=True)
    ]


def _differences(
    part: SectionSlice, cells: list[Cell], columns: Sequence[MetricColumn], decimals: int
) -> list[Cell]:
    at = {(cell.row, cell.column): cell for cell in cells}
    found = []
    for row in part.rows:
        if row.against is None:
            continue
        for column in columns:
            ours, theirs = at[row.run, column.id], at[row.against, column.id]
            published = None
            if ours.paper_value is not None and theirs.paper_value is not None:
                published = ours.paper_value - theirs.paper_value
            place = Place(row.run, column.id + DIFFERENCE)
            found.append(difference_cell(place, ours, theirs, decimals, published))
    return found
