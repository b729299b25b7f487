"""Columns of activation outliers: largest magnitudes by rank, and the median."""

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import (
    DIFFERENCE,
    Paper,
    Place,
    difference_cell,
    mean_cell,
    seed_values,
)
from difftransformer.reporting.collect import Results, metric
from difftransformer.reporting.conditions import (
    compared_with,
    shared_setting,
    training_note,
    trainings,
)
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.numbers import count

DECIMALS = 1


def outliers(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section of one kind of activation, the one that ``part.measures`` names.

    Raises:
        UserError: a result is missing, or rows were measured with different settings.
    """
    evaluated = {
        row.run: [results.evaluation(part.suites[0], row.run, seed) for seed in artifact.seeds]
        for row in part.rows
    }
    everything = [result for found in evaluated.values() for result in found]
    columns = _columns(part.measures, shared_setting(everything, "config", "ranks"))
    paper = Paper(artifact.paper)
    cells = []
    for row in part.rows:
        for column in columns:
            values = [(result, metric(result, column.id)) for result in evaluated[row.run]]
            place = Place(row.run, column.id)
            cells.append(mean_cell(place, seed_values(values, DECIMALS), DECIMALS, paper))
    differences = [
        Column(id=column.id + DIFFERENCE, header=f"Δ {column.header}", tidy_only=bool(place))
        for place, column in enumerate(columns)
    ]
    return Section(
        title=part.title,
        columns=columns + differences,
        rows=[Row(run=row.run, label=row.label) for row in part.rows],
        cells=cells + _differences(part, columns, cells),
        notes=_notes(artifact, part, results, everything),
    )


def _columns(kind: str, ranks: list[int]) -> list[Column]:
    found = [Column(id=f"{kind}_top{rank}", header=f"Top-{rank} ↓") for rank in ranks]
    return [*found, Column(id=f"{kind}_median", header="Median")]


def _differences(part: SectionSlice, columns: list[Column], cells: list[Cell]) -> list[Cell]:
    at = {(cell.row, cell.column): cell for cell in cells}
    return [
        difference_cell(
            Place(row.run, column.id + DIFFERENCE),
            at[row.run, column.id],
            at[row.against, column.id],
            DECIMALS,
            None,
        )
        for row in part.rows
        if row.against is not None
        for column in columns
    ]


def _notes(
    artifact: ArtifactSlice, part: SectionSlice, results: Results, evaluated: list[Result]
) -> list[str]:
    tokens = metric(evaluated[0], "tokens") or 0.0
    error = metric(evaluated[0], "median_error") or 0.0
    return [
        f"Absolute values over {count(tokens)} held-out tokens; the largest are exact, the median "
        f"is within {error:.1%}.",
        f"Δ: paired difference over seeds, {compared_with(part)}.",
        training_note(part.rows, trainings(part.rows, artifact.seeds, results)),
    ]
