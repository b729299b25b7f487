"""What each variant costs and what it scores as columns, and as a forest plot."""

from typing import NamedTuple

import numpy as np

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.config.timing import TRAINED_SIZES
from difftransformer.evaluations.variants.settings import Options
from difftransformer.reporting.cells import (
    DIFFERENCE,
    Paper,
    Place,
    fact_cell,
    mean_cell,
    paired_differences,
    seed_values,
)
from difftransformer.reporting.charts import cell_estimates, cells_of, estimates, seed_signs
from difftransformer.reporting.collect import metric
from difftransformer.reporting.document import Cell, Column, Section
from difftransformer.reporting.drawing import INK, Figure, Look, legend_below, printable, sign, tidy
from difftransformer.reporting.numbers import count, plain
from difftransformer.reporting.panels import panels
from difftransformer.reporting.rounds import Timings
from difftransformer.reporting.sections import section_of
from difftransformer.reporting.view import View

_FACTS = {
    "parameters": "Parameters",
    "ffn_dim": "FFN",
    "kv_bytes": "KV bytes a token",
    "training_flops": "Training FLOPs a token",
}
SPEED_RATIO = "speed_ratio"
_SPEEDS = {"speed": "Training tokens/s ↑", SPEED_RATIO: "Speed, ratio ↑"}


class Panel(NamedTuple):
    """A column of the table, and the value that the first row has or is compared at."""

    title: str
    unit: str
    reference: float | None


def section(view: View[Options]) -> Section:
    """Make the section; each row is a run and its twin."""
    scores = view.options.scores
    cells = [cell for row in view.rows for cell in _row(view, row)]
    speeds, how = _speeds(view)
    headers = _FACTS | (_SPEEDS if speeds else {})
    headers |= {name: score.header for name, score in scores.items()}
    for name, score in scores.items():
        if score.compared:
            cells += paired_differences(view.rows, [name], cells, score.decimals)
            headers[name + DIFFERENCE] = f"Δ {score.name}"
    columns = [Column(id=name, header=header) for name, header in headers.items()]
    return section_of(view, columns, [*cells, *speeds], [*_notes(view), *how])


def figure(view: View[Options]) -> Figure:
    """Draw a panel for each column; rows that a section has anew stand hollow below the first's."""
    sections = [section(part) for part in view.sections]
    shown = _panels(view.options, {column.id for column in sections[0].columns})
    firsts = {row.run for row in sections[0].rows}
    places, look = dict[str, str](), dict[str, Look]()
    for first, *others in zip(*(one.rows for one in sections), strict=True):
        anew = [row.run for row in others if row.run not in firsts]
        places |= {first.run: printable(first.label, 28)} | dict.fromkeys(anew, "")
        look |= dict.fromkeys((first.run, *anew), view.look[first.run])
    figure, (panel_axes,) = panels(1, len(shown), (11, 1.4 + 0.3 * len(places)), sharey=True)
    for axes, (key, panel) in zip(panel_axes, shown.items(), strict=True):
        if panel.reference is not None:
            axes.axvline(panel.reference, color=INK, lw=0.8)
        for number, one in enumerate(sections):
            cells = [c for c in cells_of(one, [key]) if not number or c.row not in firsts]
            found = cell_estimates(cells, by="row")
            estimates(axes, found, look, places, along="y", dodge=False, hollow=number > 0)
        tidy(axes, x=panel.unit, y="", title=panel.title)
    signs = seed_signs(view.seeds)
    signs += [sign(one.title, hollow=number > 0) for number, one in enumerate(sections)]
    legend_below(figure, signs)
    return figure


def _row(view: View[Options], row: RowSlice) -> list[Cell]:
    trained, nothing = view.trained(row), Paper(None)
    cells = [
        fact_cell(Place(row.run, name), row.facts.get(name), trained, nothing, _written)
        for name in _FACTS
    ]
    for name, score in view.options.scores.items():
        run = row.twin if score.of_twin else row.run
        assert run is not None, row.run
        found = [view.results.evaluation(score.suite, run, seed) for seed in view.seeds]
        values = seed_values(
            [(one, metric(one, score.metric)) for one in found], score.decimals,
            terms={score.metric: 1.0},
        )  # fmt: skip
        cells.append(mean_cell(Place(row.run, name), values, score.decimals, nothing))
    return cells


def _speeds(view: View[Options]) -> tuple[list[Cell], list[str]]:
    """Speeds of training and how they were timed; nothing where the scale times no variants."""
    timing = view.options.timing
    if timing is None or not view.rows[0].facts.get("timed"):
        return [], []
    timings, cells = Timings(view.results, timing), []
    timed = timings.calls[TRAINED_SIZES]
    for row in view.rows:
        speeds = timings.fastest(TRAINED_SIZES, row.run, "training")
        cells.append(timings.speed_cell(Place(row.run, "speed"), speeds))
        if row.against:
            ratios = timings.ratios(TRAINED_SIZES, row.run, row.against, "training")
            ratio = float(np.median(ratios))
            cells.append(timings.one_cell(Place(row.run, SPEED_RATIO), ratio, plain(ratio, 2)))
    return cells, [
        f"Training tokens/s: forward, loss and backward at {timed.label}, batch of "
        f"{timed.batch_size}, {timings.rounds_note('row, backend and mode')} Ratio to "
        f"{' and '.join(view.references)}: median of those within rounds. {timings.machine_note()}"
    ]


def _written(fact: float) -> str:
    return count(fact) if fact >= 10_000 else f"{fact:,.0f}"


def _notes(view: View[Options]) -> list[str]:
    notes = [
        "KV bytes a token: what the caches of all layers grow by, in 16 bits. Training FLOPs: by "
        f"formula, forward and backward, without norms and softmax. {view.options.note}",
        view.training_note(),
    ]
    others = [f"{row.run} for {row.paper}" for row in view.rows if row.paper not in (None, row.run)]
    if others:
        notes.append(f"At this scale other runs stand in, of other sizes: {', '.join(others)}.")
    return notes + view.difference_note()


def _panels(options: Options, known: set[str]) -> dict[str, Panel]:
    """Panels by the column that they show."""
    panels = {}
    for name, score in options.scores.items():
        if score.panel == "difference":
            panels[name + DIFFERENCE] = Panel(f"Δ {score.name}", score.unit, 0.0)
        elif score.panel == "value":
            panels[name] = Panel(score.name, score.unit, None)
    panels[SPEED_RATIO] = Panel("Training speed", "tokens/s, ratio, median of rounds", 1.0)
    return {key: panel for key, panel in panels.items() if key in known}
