"""Columns of a learning-rate sweep: one a rate, with the best rate and the one in use."""

import math
from typing import NamedTuple

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice, SweepRow
from difftransformer.reporting.cells import Paper, Place, mean_cell, seed_values
from difftransformer.reporting.collect import Results, metric
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.numbers import plain, rate

DECIMALS = 3
BEST, CHOSEN = "★", "†"


class Outcome(NamedTuple):
    """What the sweep says about one architecture."""

    row: RowSlice
    best: SweepRow
    chosen: SweepRow | None
    cells: dict[float, Cell]


def column_of(part: SectionSlice, learning_rate: float) -> str:
    """Column of a rate, such as ``validation_loss@4e-3``."""
    return f"{part.metric}@{rate(learning_rate)}"


def metric_name(metric: str) -> str:
    """Write a metric for readers: accuracy_n4 is the accuracy at N = 4."""
    name, _, needles = metric.partition("_n")
    if needles.isdigit():
        return f"{name} at N = {needles}"
    return metric.replace("_", " ")


def rates(part: SectionSlice) -> list[float]:
    """Every rate of the sweep, ascending."""
    return sorted({entry.learning_rate for entry in part.sweep})


def outcomes(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[Outcome]:
    """Mean metric by rate of each row, and the best rate: of equal ones the lowest.

    Raises:
        UserError: a result of the sweep is missing.
    """
    assert part.metric is not None
    found = []
    for row in part.rows:
        entries = sorted(
            (entry for entry in part.sweep if entry.run == row.run),
            key=lambda entry: entry.learning_rate,
        )
        cells = {
            entry.learning_rate: _cell(artifact, part, entry, part.metric, results)
            for entry in entries
        }
        sign = 1 if part.better == "lower" else -1
        best = min(entries, key=lambda entry: _rank(cells[entry.learning_rate], sign))
        chosen = next((entry for entry in entries if entry.chosen), None)
        found.append(Outcome(row, best, chosen, cells))
    return found


def learning_rate(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section: rows are architectures, columns are rates.

    Raises:
        UserError: a result of the sweep is missing.
    """
    found = outcomes(artifact, part, results)
    columns = [Column(id=column_of(part, one), header=f"lr {rate(one)}") for one in rates(part)]
    columns.append(Column(id="best_learning_rate", header=f"{BEST} best"))
    columns.append(Column(id="chosen_learning_rate", header=f"{CHOSEN} in use"))
    return Section(
        title=part.title,
        columns=columns,
        rows=[Row(run=one.row.run, label=one.row.label) for one in found],
        cells=[cell for one in found for cell in _row_cells(one)],
        notes=[
            f"{metric_name(str(part.metric)).capitalize()} at the end of training, "
            f"{part.better} is better; {BEST} best mean, {CHOSEN} the rate of the tables' runs.",
            *(judgement(part, one) for one in found),
        ],
    )


def judgement(part: SectionSlice, outcome: Outcome) -> str:
    """Say whether the configuration uses the best rate, and whether the grid was wide enough."""
    best, chosen, label = outcome.best, outcome.chosen, outcome.row.label
    swept = sorted(outcome.cells)
    at_best = rate(best.learning_rate)
    if outcome.cells[best.learning_rate].value is None:
        return f"{label}: {metric_name(str(part.metric))} is undefined at every rate of the sweep."
    if chosen is None:
        text = f"{label}: the rate in use is none of those swept; the best of them is {at_best}"
    elif chosen.learning_rate == best.learning_rate:
        text = f"{label}: the rate in use, {at_best}, is the best of the sweep"
    else:
        one, two = (
            outcome.cells[chosen.learning_rate].value,
            outcome.cells[best.learning_rate].value,
        )
        assert two is not None
        ours = "undefined" if one is None else plain(one, DECIMALS)
        text = (
            f"{label}: the rate in use, {rate(chosen.learning_rate)} ({ours}), is not the best of "
            f"the sweep, {at_best} ({plain(two, DECIMALS)})"
        )
    if len(swept) > 1 and best.learning_rate in (swept[0], swept[-1]):
        text += "; the best lies at the edge of the grid, so a wider one may find a better"
    return text + "."


def _cell(
    artifact: ArtifactSlice, part: SectionSlice, entry: SweepRow, name: str, results: Results
) -> Cell:
    trained = [results.training(entry.run_id, seed) for seed in artifact.seeds]
    seeds = seed_values([(result, metric(result, name)) for result in trained], DECIMALS)
    place = Place(entry.run, column_of(part, entry.learning_rate))
    return mean_cell(place, seeds, DECIMALS, Paper(None))


def _rank(cell: Cell, sign: int) -> float:
    """A rate at which a seed has no value ranks last: its mean would be that of the survivors."""
    if cell.value is None or any(seed.value is None for seed in cell.seeds):
        return math.inf
    return sign * cell.value


def _row_cells(outcome: Outcome) -> list[Cell]:
    cells = []
    for one, cell in outcome.cells.items():
        marks = BEST if one == outcome.best.learning_rate else ""
        if outcome.chosen is not None and one == outcome.chosen.learning_rate:
            marks += CHOSEN
        text = f"{cell.text} {marks}" if marks else cell.text
        cells.append(cell.model_copy(update={"text": text}))
    for column, entry in (("best", outcome.best), ("chosen", outcome.chosen)):
        cells.append(
            Cell(
                row=outcome.row.run,
                column=f"{column}_learning_rate",
                text="not swept" if entry is None else rate(entry.learning_rate),
                value=None if entry is None else entry.learning_rate,
                n=outcome.cells[outcome.best.learning_rate].n,
                seeds=[
                    seed.model_copy(update={"value": None, "text": ""})
                    for swept in outcome.cells.values()
                    for seed in swept.seeds
                ],
            )
        )
    return cells
