"""Validation loss along training: at equal parts of the budget, and as curves."""

from difftransformer.errors import DataError
from difftransformer.evaluations.training_loss.settings import Options
from difftransformer.reporting.cells import (
    DIFFERENCE_SUFFIX,
    CellKey,
    mean_cell,
    paired_differences,
    seed_values,
)
from difftransformer.reporting.charts import require_same_steps
from difftransformer.reporting.document import Column, Section
from difftransformer.reporting.drawing import Figure, legend_below, row_styles
from difftransformer.reporting.loss_panels import (
    VALIDATION_LOSS,
    draw_loss_curves,
    draw_loss_differences,
)
from difftransformer.reporting.number_format import format_count
from difftransformer.reporting.panels import row_legend, subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import make_section

PARTS = (25, 50, 75, 100)
"""Parts of the budget in % with a column each: the validation nearest to it."""
_DECIMALS = 3


def section(context: SectionContext[Options]) -> Section:
    """Make the section; the learning rate has finished its decay at the last column alone."""
    trained = context.train_results()
    curves = [context.results.histories.series(r.run, r.seed, VALIDATION_LOSS) for r in trained]
    first = require_same_steps(context.artifact.artifact, curves)[0]
    tokens = first.tokens
    if not tokens:
        raise DataError(f"{context.artifact.artifact}: its runs have no validation losses")
    places = {f"loss_{part}": first.nearest(part, 100) for part in PARTS}
    cells = []
    for row in context.rows:
        own = [(r, one.values) for r, one in zip(trained, curves, strict=True) if r.run == row.run]
        for name, place in places.items():
            seeds = seed_values([(result, values[place]) for result, values in own], _DECIMALS)
            cells.append(mean_cell(CellKey(row.run, name), seeds, _DECIMALS, context.published))
    ending = context.difference_suffix()
    cells += paired_differences(context.rows, list(places), cells, _DECIMALS, ending)
    columns = [
        Column(id=n, header=f"{format_count(tokens[place])} ↓") for n, place in places.items()
    ]
    notes = [
        "Validation loss in nats per token while training, by training tokens. Only at the last "
        "column has the learning rate finished its decay.",
        context.training_note(),
    ]
    if context.has_baselines:
        columns += [
            Column(
                id=one.id + DIFFERENCE_SUFFIX + ending, header=f"Δ {one.header.removesuffix(' ↓')}"
            )
            for one in columns
        ]
    return make_section(context, columns, cells, notes + context.difference_note())


def figure(context: SectionContext[Options]) -> Figure:
    """Draw the curves of the first section, and the differences of all that follow training."""
    parts = context.sibling_contexts
    look = row_styles({row.run: row.color for part in parts for row in part.rows})
    number = 1 + len(parts)
    figure, ((first, *others),) = subplot_grid(1, number, (3.9 * number, 3.9))
    draw_loss_curves(first, parts[0], look)
    for axes, part in zip(others, parts, strict=True):
        draw_loss_differences(axes, part, look)
    legend_below(figure, row_legend(context.rows, look))
    return figure
