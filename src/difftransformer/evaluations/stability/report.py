"""Training stability: spikes and divergence as columns, by learning rate or at a row's own.

The picture has them by learning rate, and the curves at the largest one.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.errors import UserError
from difftransformer.evaluations.stability.settings import THRESHOLD, WINDOW, Options
from difftransformer.evaluations.stability.spikes import (
    KINDS,
    SPIKES,
    ByRate,
    Stability,
    by_rate,
    stability_of,
)
from difftransformer.reporting.cells import (
    DIFFERENCE,
    Paper,
    Place,
    mean_cell,
    paired_differences,
    seed_values,
    share_cell,
)
from difftransformer.reporting.charts import HOLLOW, RANGE, Point, lines, mean_points
from difftransformer.reporting.collect import defined
from difftransformer.reporting.conditions import span
from difftransformer.reporting.document import Cell, Column, Section
from difftransformer.reporting.drawing import Axes, Figure, Look, legend_below, tidy
from difftransformer.reporting.numbers import rate
from difftransformer.reporting.panels import halves, log_ticks, row_signs
from difftransformer.reporting.sections import section_of
from difftransformer.reporting.view import View

LARGE = "_large"
"""Ending of the column over the rates from a row's own on, up to where all rows are lost."""
_LOST = 95.0  # % of steps: what is left of a training that diverges at once
_PERCENT, _NATS = 2, 3
_UNITS = {
    "loss_spikes": "% of steps",
    "gradient_spikes": "% of steps",
    "diverged": "share of seeds",
    "final_loss": "nats per token",
}
_CURVES = {"loss": "training loss, nats", "grad_norm": "gradient norm before clipping"}


def section(view: View[Options]) -> Section | list[Section]:
    """Make the section of rows at their own learning rates, or those of a sweep."""
    return _swept(view) if view.options.swept else _at_own_rates(view)


def figure(view: View[Options]) -> Figure:
    """Draw a sweep."""
    rates, look = view.rates, view.look
    found = {row.run: by_rate(view, row) for row in view.rows}
    figure, top, bottom = halves((12, 6.8))
    for axes, (kind, title) in zip(top.subplots(1, len(KINDS)), KINDS.items(), strict=True):
        for row in view.rows:
            _by_rate(axes, kind, row.run, found[row.run], look)
        log_ticks(axes, rates, list(map(rate, rates)), rotation=45)
        tidy(axes, x="peak learning rate", y=_UNITS[kind], title=title)
    for axes, column in zip(bottom.subplots(1, len(_CURVES)), _CURVES, strict=True):
        for row in view.rows:
            _at_the_largest(axes, view, row, column)
        axes.set_yscale("log")
        tidy(axes, x="step", y=_CURVES[column], title=f"At {rate(rates[-1])}, one line a seed")
    legend_below(figure, row_signs(view.rows, look, mark=4))
    return figure


def _swept(view: View[Options]) -> list[Section]:
    """Sections, one a kind: rows are architectures, columns are rates."""
    found = {row.run: by_rate(view, row) for row in view.rows}
    lost = _lost_rates(found)
    large, sections = _large_rates(view, lost), []
    for kind, title in KINDS.items():
        columns = [Column(id=f"{kind}@{rate(one)}", header=f"lr {rate(one)}") for one in view.rates]
        cells = [
            _cell(Place(row.run, f"{kind}@{rate(one)}"), kind, trained)
            for row in view.rows
            for one, trained in found[row.run].items()
        ]
        if kind in SPIKES:
            columns += [
                Column(id=kind + LARGE, header="large rates ↓"),
                Column(id=kind + LARGE + DIFFERENCE, header="Δ large rates"),
            ]
            over = [
                _over_rates(Place(row.run, kind + LARGE), kind, found[row.run], large[row.run])
                for row in view.rows
            ]
            cells += over + paired_differences(view.rows, [kind + LARGE], over, _PERCENT)
        sections.append(section_of(view, columns, cells, title=title))
    trained = [one.result for rows in found.values() for row in rows.values() for one in row]
    steps = [defined(one, "planned_steps") for one in trained]
    sizes = [defined(one, "non_embedding_parameters") for one in trained]
    notes = [
        *_definitions(),
        *view.difference_note(),
        f"Training: {span(steps)} steps a run; {span(sizes)} parameters without embeddings.",
        f"Large rates: from {rate(min(min(large.values())))} on; their mean."
        + (
            f" Left out, where every row loses nearly all its steps: {', '.join(map(rate, lost))}."
            if lost
            else ""
        ),
    ]
    sections[0] = sections[0].model_copy(update={"notes": notes})
    return sections


def _at_own_rates(view: View[Options]) -> Section:
    """Section of rows at their own learning rates: columns are the kinds."""
    cells = [
        _cell(Place(row.run, kind), kind, trained)
        for row in view.rows
        for trained in [stability_of(view.results, row.run, view.seeds)]
        for kind in KINDS
    ]
    compared = [kind for kind in KINDS if kind != "diverged"]
    columns = [Column(id=kind, header=f"{header} ↓") for kind, header in KINDS.items()]
    columns += [
        Column(id=kind + DIFFERENCE, header=f"Δ {KINDS[kind]}", tidy_only=kind == "final_loss")
        for kind in compared
    ]
    cells += paired_differences(view.rows, compared, cells, _PERCENT)
    notes = [*_definitions(), view.training_note(), *view.difference_note()]
    return section_of(view, columns, cells, notes)


def _cell(place: Place, kind: str, trained: Sequence[Stability]) -> Cell:
    """One kind of one row at one rate, over its seeds."""
    decimals = _NATS if kind == "final_loss" else _PERCENT
    values = [(one.result, one.values[kind]) for one in trained]
    seeds = seed_values(values, decimals, nothing="diverged")
    if kind == "diverged":
        return share_cell(place, seeds)
    cell = mean_cell(place, seeds, decimals, Paper(None))
    if kind == "final_loss" and cell.n < len(trained):
        text = "diverged" if not cell.n else f"{cell.text} ({len(trained) - cell.n} diverged)"
        return cell.model_copy(update={"text": text})
    return cell


def _over_rates(place: Place, kind: str, found: ByRate, rates: Sequence[float]) -> Cell:
    """Mean over the large rates, seed by seed, with the jobs of all of them."""
    seeds = []
    for trained in zip(*(found[one] for one in rates), strict=True):
        values = [value for one in trained if (value := one.values[kind]) is not None]
        assert len(values) == len(trained), place
        (seed,) = seed_values([(trained[0].result, fmean(values))], _PERCENT)
        jobs = [one.result.job_id for one in trained]
        seeds.append(seed.model_copy(update={"job_ids": jobs}))
    return mean_cell(place, seeds, _PERCENT, Paper(None))


def _lost_rates(found: Mapping[str, ByRate]) -> list[float]:
    """Rates at which every training of every row loses nearly all its steps."""
    rates = set.intersection(*({*rows} for rows in found.values()))
    return sorted(
        one
        for one in rates
        if all(
            (value := trained.values[kind]) is not None and value >= _LOST
            for rows in found.values()
            for trained in rows[one]
            for kind in SPIKES
        )
    )


def _large_rates(view: View[Options], lost: Sequence[float]) -> dict[str, list[float]]:
    """Rates of each row from its own, which the configuration gives it, on, that are not lost.

    Where all of them are, all of them: that says so itself.
    """
    found = {}
    for row in view.rows:
        swept = view.swept(row)
        own = next((one.learning_rate for one in swept if one.chosen), None)
        if own is None:
            raise UserError(
                f"{row.run}: the sweep has the rates {[one.learning_rate for one in swept]}, its "
                "own is none of them: add it to the grid in the scale's file"
            )
        large = [one.learning_rate for one in swept if one.learning_rate >= own]
        found[row.run] = [one for one in large if one not in lost] or large
    return found


def _definitions() -> list[str]:
    return [
        f"Spikes, in % of steps: a step is one if its loss, or its gradient norm before clipping, "
        f"exceeds the median of the {WINDOW} steps before it by more than "
        f"{THRESHOLD:g} robust standard deviations (1.4826 median absolute deviations). "
        "Every step that is lost to a divergence counts as a spike.",
        "A run diverges at the first step with a loss or a gradient that is not finite, or with a "
        "loss above training.divergence_loss after warm-up.",
    ]


def _by_rate(axes: Axes, kind: str, run: str, found: ByRate, look: dict[str, Look]) -> None:
    """Mean over the seeds that have a value, with their range; a share has none.

    A training that diverged has no loss at the end: the mean of the others has a hollow mark.
    """
    points = [
        Point(run, learning_rate, value)
        for learning_rate, trained in found.items()
        for seed in trained
        if (value := seed.values[kind]) is not None
    ]
    partial = {x for x, trained in found.items() if any(s.values[kind] is None for s in trained)}
    lines(axes, points, look, marks=4, errorbar=None if kind == "diverged" else RANGE)
    fewer = [point for point in mean_points(points) if point.x in partial]
    lines(axes, fewer, look, marks=4, lw=0, **HOLLOW)


def _at_the_largest(axes: Axes, view: View[Options], row: RowSlice, column: str) -> None:
    """Every seed's curve, up to where it diverges."""
    largest = view.swept(row)[-1]
    found = [view.results.histories.series(largest.run_id, seed, column) for seed in view.seeds]
    points = [
        Point(row.run, step, value, seed)
        for seed, one in enumerate(found)
        for step, value in zip(one.steps, one.values, strict=True)
    ]
    lines(axes, points, view.look, units="seed", estimator=None, lw=0.9, alpha=0.8)
