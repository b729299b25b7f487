"""Sections whose columns are metrics of one suite: means over seeds and paired differences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import (
    DIFFERENCE,
    Paper,
    Place,
    mean_cell,
    seed_values,
)
from difftransformer.reporting.collect import Results
from difftransformer.reporting.conditions import compared_with, evaluated
from difftransformer.reporting.differences import paired_differences
from difftransformer.reporting.document import Column, Row, Section, SeedValue


@dataclass(frozen=True)
class MetricColumn:
    """One column.

    Attributes:
        id: Id of the column, also in claims and published tables.
        header: What stands above it.
        value: Number of one result; None where it is undefined.
        remark: What a reader who opens a cell is told beside a seed's number.
        hidden: Whether the column is in the csv alone.
        compared: Whether its paired difference is shown, too, where rows are compared.
    """

    id: str
    header: str
    value: Callable[[Result], float | None]
    remark: Callable[[Result], str] | None = None
    hidden: bool = False
    compared: bool = False


def metric_section(
    artifact: ArtifactSlice,
    part: SectionSlice,
    results: Results,
    columns: Sequence[MetricColumn],
    *,
    decimals: int,
    notes: list[str],
) -> Section:
    """Make the section; most differences to the row compared with are in the csv alone.

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
            Column(id=one.id + DIFFERENCE, header=f"Δ {one.header}", tidy_only=not one.compared)
            for one in columns
        ]
        notes = [
            *notes,
            f"Δ, all of them in the csv: paired difference over seeds, {compared_with(part)}.",
        ]
    return Section(
        title=part.title,
        columns=shown,
        rows=[Row(run=row.run, label=row.label) for row in part.rows],
        cells=cells + paired_differences(part.rows, [one.id for one in columns], cells, decimals),
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
