"""What methods learn and forget: losses, parameters that train, and curves by rate or tokens."""

from difftransformer.evaluations.adaptation.frontier import DECIMALS, TEXTS, by_rate, draw_frontier
from difftransformer.evaluations.adaptation.settings import Options
from difftransformer.reporting.cells import DIFFERENCE, paired_differences
from difftransformer.reporting.charts import Point, lines
from difftransformer.reporting.collect import defined
from difftransformer.reporting.document import Column, Section
from difftransformer.reporting.drawing import Axes, Figure, legend_below, looks, tidy
from difftransformer.reporting.numbers import count
from difftransformer.reporting.panels import panels, round_log_ticks, row_signs
from difftransformer.reporting.sections import Metric, adapted_sizes, metric_cells, section_of
from difftransformer.reporting.view import View


def section(view: View[Options]) -> Section:
    """Make the section: by row, or by row and learning rate."""
    return by_rate(view) if view.options.swept else _by_run(view)


def figure(view: View[Options]) -> Figure:
    """Draw each row in the plane of both losses, a point or a curve over rates, or by tokens."""
    if view.options.by == "tokens":
        return _by_tokens(view)
    drawn, ((axes,),) = panels(1, 1, (8, 5.6))
    (draw_frontier if view.options.swept else _points)(axes, view)
    tidy(
        axes,
        x="loss on the new text, nats (left: has learned)",
        y="loss on the old text, nats (down: has kept)",
        title=view.title,
    )
    line = 1.6 if view.options.swept else 0
    legend_below(drawn, row_signs(view.rows, view.look, line=line, mark=6))
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
    return section_of(view, columns, cells, [*notes, *view.difference_note()])


def _texts(view: View[Options]) -> "list[tuple[View[Options], Metric]]":
    """The section with the suite of each text alone."""
    return [
        (view.having(suites=[suite]), one)
        for suite, one in zip(view.part.suites, TEXTS, strict=True)
    ]


def _by_tokens(view: View[Options]) -> Figure:
    """A panel for each text: losses of each row's setups by the tokens that they train on."""
    drawn, (places,) = panels(1, len(TEXTS), (10, 4.2))
    look = looks({one.run: one.look for one in view.part.families})
    rows = {row.run: row for row in view.rows}
    for axes, (of_text, one) in zip(places, _texts(view), strict=True):
        points = []
        for family in view.part.families:
            for run in family.members:
                tokens = defined(view.trained(rows[run])[0], "tokens")
                losses = [one.value(result) for result in of_text.evaluated(rows[run])]
                known = [loss for loss in losses if loss is not None]
                if len(known) == len(losses):  # no mean of the seeds that did not diverge
                    points += [Point(family.run, tokens, loss) for loss in known]
        lines(axes, points, look, marks=4.5)
        round_log_ticks(axes, lambda x, _: count(x))
        tidy(axes, x="tokens of adaptation", y="loss, nats", title=one.header.removesuffix(" ↓"))
    legend_below(drawn, row_signs(view.part.families, look, mark=4.5))
    return drawn


def _points(axes: Axes, view: View[Options]) -> None:
    made = section(view)
    cells = [[made.cell(row.run, one.id) for one in TEXTS] for row in view.rows]
    points = [
        Point(new.row, new.value, old.value)
        for new, old in cells
        if new and old and new.value is not None and old.value is not None
    ]
    lines(axes, points, view.look, marks=6, lw=0)
