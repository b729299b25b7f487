"""Table of validation loss at fractions of the training budget, and its curves."""

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

PERCENTS = (25, 50, 75, 100)
"""Fractions of the training budget in %; each has a table column with the nearest validation."""
_DECIMALS = 3


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of validation losses along training, with paired differences."""
    trained = context.train_results()
    curves = [context.results.histories.series(r.run, r.seed, VALIDATION_LOSS) for r in trained]
    first = require_same_steps(context.artifact.artifact, curves)[0]
    tokens = first.tokens
    if not tokens:
        raise DataError(f"{context.artifact.artifact}: its runs have no validation losses")
    indices = {f"loss_{percent}": first.nearest(percent, 100) for percent in PERCENTS}
    cells = []
    for row in context.rows:
        row_curves = [
            (r, difference.values)
            for r, difference in zip(trained, curves, strict=True)
            if r.run == row.run
        ]
        for name, index in indices.items():
            seeds = seed_values(
                [(result, values[index]) for result, values in row_curves], _DECIMALS
            )
            cells.append(mean_cell(CellKey(row.run, name), seeds, _DECIMALS, context.published))
    ending = context.difference_suffix()
    cells += paired_differences(context.rows, list(indices), cells, _DECIMALS, ending)
    columns = [
        Column(id=n, header=f"{format_count(tokens[index])} ↓") for n, index in indices.items()
    ]
    notes = [
        "Validation loss in nats per token while training, by training tokens. Only at the last "
        "column has the learning rate finished its decay.",
        context.training_note(),
    ]
    if context.has_baselines:
        columns += [
            Column(
                id=difference.id + DIFFERENCE_SUFFIX + ending,
                header=f"Δ {difference.header.removesuffix(' ↓')}",
            )
            for difference in columns
        ]
    return make_section(context, columns, cells, notes + context.difference_note())


def figure(context: SectionContext[Options]) -> Figure:
    """Draw validation loss curves of the first section, and differences of every section."""
    contexts = context.sibling_contexts
    styles = row_styles({row.run: row.color for part in contexts for row in part.rows})
    number = 1 + len(contexts)
    figure, ((first, *difference_axes),) = subplot_grid(1, number, (3.9 * number, 3.9))
    draw_loss_curves(first, contexts[0], styles)
    for axes, part in zip(difference_axes, contexts, strict=True):
        draw_loss_differences(axes, part, styles)
    legend_below(figure, row_legend(context.rows, styles))
    return figure
