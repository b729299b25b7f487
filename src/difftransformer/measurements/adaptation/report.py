"""What methods learn and forget: losses, parameters that train, and curves by rate or tokens."""

from collections.abc import Sequence
from math import nan
from typing import TYPE_CHECKING

from difftransformer.measurements.adaptation.frontier import DECIMALS, TEXTS, by_rate, draw_frontier
from difftransformer.measurements.adaptation.settings import Options
from difftransformer.reporting.cells import DIFFERENCE, paired_differences
from difftransformer.reporting.collect import defined
from difftransformer.reporting.curves import Curve, draw
from difftransformer.reporting.document import Cell, Column, Section
from difftransformer.reporting.drawing import legend_below, looks, printable, tidy
from difftransformer.reporting.numbers import count
from difftransformer.reporting.panels import panels, round_log_ticks
from difftransformer.reporting.sections import Metric, adapted_sizes, metric_cells, section_of
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SAME = 0.01
"""Nats below which a note calls two losses the same; the margin of the claims on it."""


def section(view: View[Options]) -> Section:
    """Make the section: by row, or by row and learning rate."""
    return by_rate(view) if view.options.swept else _by_run(view)


def figure(view: View[Options]) -> "Figure":
    """Draw each row in the plane of both losses, a point or a curve over rates, or by tokens."""
    if view.options.by == "tokens":
        return _by_tokens(view)
    import matplotlib.pyplot as plt

    drawn, axes = plt.subplots(figsize=(8, 5.6), layout="constrained")
    (draw_frontier if view.options.swept else _points)(axes, view)
    tidy(
        axes,
        x="loss on the new text, nats (left: has learned)",
        y="loss on the old text, nats (down: has kept)",
        title=view.title,
    )
    legend_below(drawn, axes)
    return drawn


def _by_run(view: View[Options]) -> Section:
    cells = []
    for view_of_text, one in _texts(view):
        found = metric_cells(view_of_text, [one], DECIMALS, view.paper)
        cells += [*found, *paired_differences(view.rows, [one.id], found, DECIMALS)]
    columns = [Column(id=one.id, header=one.header) for one in TEXTS]
    if view.compared:
        columns += [Column(id=one.id + DIFFERENCE, header=f"Δ {one.header}") for one in TEXTS]
    sizes = adapted_sizes(view)
    columns, cells = [*columns, *sizes.columns], [*cells, *sizes.cells]
    notes = [
        "Losses in nats per token on held-out text: of what runs are adapted to, and of what the "
        "pipeline's own models are trained on.",
        *sizes.notes,
        view.training_note(),
    ]
    notes += view.difference_note()
    if view.compared:
        notes += _equal(view, cells)
    return section_of(view, columns, cells, notes)


def _equal(view: View[Options], cells: Sequence[Cell]) -> list[str]:
    """Name the rows that end where the one does that they are compared with."""
    differences = {(cell.row, cell.column): cell for cell in cells}

    def is_same(cell: Cell | None) -> bool:
        if cell is None or cell.ci_low is None or cell.ci_high is None:
            return False
        return -SAME < cell.ci_low <= cell.ci_high < SAME

    equal = [
        row.label
        for row in view.rows
        if all(is_same(differences.get((row.run, one.id + DIFFERENCE))) for one in TEXTS)
    ]
    if not equal:
        return []
    return [
        f"{' and '.join(equal)}: the same as {' and '.join(view.references)} on both texts; the "
        f"95% intervals of the differences lie within {SAME} nats of zero."
    ]


def _texts(view: View[Options]) -> "list[tuple[View[Options], Metric]]":
    """The section with the suite of each text alone."""
    return [
        (view.having(suites=[suite]), one)
        for suite, one in zip(view.part.suites, TEXTS, strict=True)
    ]


def _by_tokens(view: View[Options]) -> "Figure":
    """A panel for each text: losses of each row's setups by the tokens that they train on."""
    drawn, (places,) = panels(1, len(TEXTS), (10, 4.2))
    look = looks({one.run: one.look for one in view.part.families})
    rows = {row.run: row for row in view.rows}
    for axes, (of_text, one) in zip(places, _texts(view), strict=True):
        for family in view.part.families:
            members = sorted(
                (defined(view.trained(rows[run])[0], "tokens"), run) for run in family.members
            )
            found = [
                [
                    nan if (loss := one.value(result)) is None else loss
                    for result in of_text.evaluated(rows[run])
                ]
                for _, run in members
            ]
            curve = Curve([tokens for tokens, _ in members], found)
            draw(axes, curve, look[family.run], printable(family.label), marks=4.5)
        round_log_ticks(axes, lambda x, _: count(x))
        tidy(axes, x="tokens of adaptation", y="loss, nats", title=one.header.removesuffix(" ↓"))
    legend_below(drawn, places[0])
    return drawn


def _points(axes: "Axes", view: View[Options]) -> None:
    made = section(view)
    for row in view.rows:
        look, new, old = view.look[row.run], made.cell(row.run, "new"), made.cell(row.run, "old")
        assert new is not None and old is not None
        if new.value is None or old.value is None:
            continue
        axes.plot(new.value, old.value, look.marker, color=look.colour, label=printable(row.label))
