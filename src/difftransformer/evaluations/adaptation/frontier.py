"""Learning against forgetting over learning rates: a table, curves, and both at equal forgetting.

At one rate who learns less forgets less. Curves compare at the same loss on the old text: the
middle of what every row reaches with some rate, seed by seed, and between two rates of a row along
the straight line.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.evaluations.adaptation.settings import Options
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import (
    DIFFERENCE,
    UNDEFINED,
    Place,
    mean_cell,
    paired_differences,
    seed_values,
)
from difftransformer.reporting.charts import Point, lines
from difftransformer.reporting.document import Cell, Column, Section, SeedValue
from difftransformer.reporting.drawing import Axes
from difftransformer.reporting.numbers import plain, rate
from difftransformer.reporting.sections import Metric, adapted_sizes, section_of
from difftransformer.reporting.view import View

DECIMALS = 3
TEXTS = (
    Metric("new", "New text ↓", "loss", compared=True),
    Metric("old", "Old text ↓", "loss", compared=True),
)
AT_EQUAL = Metric("new_at_equal_old", "New text at equal old ↓")
Losses = tuple[float, float]
"""Losses of one training on the new text and on the old."""
Swept = list[tuple[Cell, Cell]]
"""Cells of a row by rate, ascending: on the new text and on the old."""


def by_rate(view: View[Options]) -> Section:
    """Make the section: losses of every row at every rate, and at equal forgetting."""
    sizes = adapted_sizes(view)
    columns = [
        Column(id=f"{one.id}@{rate(lr)}", header=f"{one.header.removesuffix(' ↓')}, lr {rate(lr)}")
        for lr in view.rates
        for one in TEXTS
    ]
    rows = {row.run: _swept(view, row) for row in view.rows}
    equal = _at_equal(view, rows)
    columns.append(Column(id=AT_EQUAL.id, header=AT_EQUAL.header))
    if view.compared:
        columns.append(Column(id=AT_EQUAL.id + DIFFERENCE, header=f"Δ {AT_EQUAL.header}"))
        equal += paired_differences(view.rows, [AT_EQUAL.id], equal, DECIMALS)
    notes = [
        "The same number of rates for every method. At equal old: where the loss on the old text "
        "is the middle of what every row reaches with some rate, seed by seed; between two rates "
        "along the straight line."
    ]
    notes += view.difference_note()
    cells = [cell for points in rows.values() for pair in points for cell in pair]
    return section_of(
        view, [*sizes.columns, *columns], [*sizes.cells, *cells, *equal], [*sizes.notes, *notes]
    )


def draw_frontier(axes: Axes, view: View[Options]) -> None:
    """Draw each row's curve in the plane of both losses, its first and last rate written."""
    points = []
    for row in view.rows:
        at = [
            (Point(row.run, new.value, old.value), entry.learning_rate)
            for (new, old), entry in zip(_swept(view, row), view.swept(row), strict=True)
            if new.value is not None and old.value is not None
        ]
        for point, lr in (*at[:1], *at[-1:]):
            place = (point.x, point.y)
            axes.annotate(rate(lr), place, (4, 4), textcoords="offset points", fontsize=7)
        points += [point for point, _ in at]
    lines(axes, points, view.look, marks=6, sort=False, estimator=None)


def equal_level(curves: Sequence[Sequence[Losses]]) -> float | None:
    """Middle of the losses on the old text that every curve reaches; None: there are none."""
    if not all(curves):
        return None
    low = max(min(old for _, old in one) for one in curves)
    high = min(max(old for _, old in one) for one in curves)
    return (low + high) / 2 if low <= high else None


def learned_at(curve: Sequence[Losses], level: float) -> float | None:
    """Lowest loss on the new text where a curve has that loss on the old one; None: nowhere."""
    found = [new for new, old in curve if old == level]
    for (new, old), (next_new, next_old) in pairwise(curve):
        if min(old, next_old) < level < max(old, next_old):
            found.append(new + (next_new - new) * (level - old) / (next_old - old))
    return min(found, default=None)


def _swept(view: View[Options], row: RowSlice) -> Swept:
    return [
        (
            _at(view, row, entry.run_id, entry.learning_rate, 0),
            _at(view, row, entry.run_id, entry.learning_rate, 1),
        )
        for entry in view.swept(row)
    ]


def _at(view: View[Options], row: RowSlice, run: str, lr: float, text: int) -> Cell:
    suite, one = view.part.suites[text], TEXTS[text]
    results: Sequence[Result] = [view.results.evaluation(suite, run, seed) for seed in view.seeds]
    known = [(result, one.value(result)) for result in results]
    values = seed_values(known, DECIMALS, terms=one.terms)
    return mean_cell(Place(row.run, f"{one.id}@{rate(lr)}"), values, DECIMALS, view.paper)


def _at_equal(view: View[Options], rows: Mapping[str, Swept]) -> list[Cell]:
    """A cell for each row: the loss on the new text at equal forgetting, by seed."""
    found: dict[str, list[SeedValue]] = {run: [] for run in rows}
    for place, seed in enumerate(view.seeds):
        curves = {run: _curve(points, place) for run, points in rows.items()}
        level = equal_level(list(curves.values()))
        for run, curve in curves.items():
            value = None if level is None else learned_at(curve, level)
            jobs = [one.seeds[place].job_ids for pair in rows[run] for one in pair]
            found[run].append(
                SeedValue(
                    seed=seed,
                    value=value,
                    text=UNDEFINED if value is None else plain(value, DECIMALS),
                    job_ids=sorted(job for ids in jobs for job in ids),
                )
            )
    return [
        mean_cell(Place(run, AT_EQUAL.id), seeds, DECIMALS, view.paper)
        for run, seeds in found.items()
    ]


def _curve(points: Swept, place: int) -> list[Losses]:
    """Both losses of a row with one seed, by rate, where both exist."""
    losses = [(new.seeds[place].value, old.seeds[place].value) for new, old in points]
    return [(new, old) for new, old in losses if new is not None and old is not None]
