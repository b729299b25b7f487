"""Columns of the validation loss along training: at equal parts of the budget, and differences."""

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice
from difftransformer.errors import DataError
from difftransformer.reporting.cells import DIFFERENCE, Paper, Place, mean_cell, seed_values
from difftransformer.reporting.collect import Results
from difftransformer.reporting.conditions import (
    compared_with,
    reference,
    training_note,
    trainings,
)
from difftransformer.reporting.curves import same_steps
from difftransformer.reporting.differences import paired_differences
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.numbers import count

DECIMALS = 3
PARTS = (25, 50, 75, 100)
"""Parts of the budget in % with a column each: the validation nearest to it."""
_COLUMN = "validation_loss"


def loss_by_tokens(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section; the learning rate has finished its decay at the last column alone.

    Raises:
        UserError: a result or a history is missing.
        DataError: rows were validated at different steps.
    """
    series = {
        f"{row.run}, seed {seed}": results.histories.series(row.run, seed, _COLUMN)
        for row in part.rows
        for seed in artifact.seeds
    }
    tokens = same_steps(artifact.artifact, dict(enumerate(series.values())))[0].tokens
    if not tokens:
        raise DataError(f"{artifact.artifact}: its runs have no validation losses")
    places = {
        percent: min(
            range(len(tokens)), key=lambda index: abs(tokens[index] - tokens[-1] * percent / 100)
        )
        for percent in PARTS
    }
    names = [f"loss_{percent}" for percent in PARTS]
    columns = [
        Column(id=f"loss_{percent}", header=f"{count(tokens[place])} ↓")
        for percent, place in places.items()
    ]
    ending = reference(
        part, next(one for one in artifact.sections if one.measures == part.measures)
    )
    if any(row.against for row in part.rows):
        columns += [
            Column(id=one.id + DIFFERENCE + ending, header=f"Δ {one.header.removesuffix(' ↓')}")
            for one in columns
        ]
    cells = [cell for row in part.rows for cell in _row(artifact, row, places, results)]
    return Section(
        title=part.title,
        columns=columns,
        rows=[Row(run=row.run, label=row.label) for row in part.rows],
        cells=cells + paired_differences(part.rows, names, cells, DECIMALS, ending),
        notes=_notes(artifact, part, results),
    )


def _row(
    artifact: ArtifactSlice, row: RowSlice, places: dict[int, int], results: Results
) -> list[Cell]:
    curves = [
        (results.training(row.run, seed), results.histories.series(row.run, seed, _COLUMN).values)
        for seed in artifact.seeds
    ]
    paper = Paper(artifact.paper)
    return [
        mean_cell(
            Place(row.run, f"loss_{percent}"),
            seed_values([(result, values[place]) for result, values in curves], DECIMALS),
            DECIMALS,
            paper,
        )
        for percent, place in places.items()
    ]


def _notes(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[str]:
    notes = [
        "Validation loss in nats per token while training, by training tokens. Only at the last "
        "column has the learning rate finished its decay.",
        training_note(part.rows, trainings(part.rows, artifact.seeds, results)),
    ]
    if any(row.against for row in part.rows):
        notes.append(f"Δ: paired difference over seeds, {compared_with(part)}.")
    return notes
