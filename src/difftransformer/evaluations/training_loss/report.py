"""Validation loss along training: at equal parts of the budget, and as curves."""

from difftransformer.errors import DataError
from difftransformer.evaluations.training_loss.settings import Options
from difftransformer.reporting.cells import (
    DIFFERENCE,
    Place,
    mean_cell,
    paired_differences,
    seed_values,
)
from difftransformer.reporting.charts import same_steps
from difftransformer.reporting.document import Column, Section
from difftransformer.reporting.drawing import Figure, legend_below, looks
from difftransformer.reporting.loss_panels import VALIDATION_LOSS, loss_curves, loss_differences
from difftransformer.reporting.numbers import count
from difftransformer.reporting.panels import panels, row_signs
from difftransformer.reporting.sections import section_of
from difftransformer.reporting.view import View

PARTS = (25, 50, 75, 100)
"""Parts of the budget in % with a column each: the validation nearest to it."""
_DECIMALS = 3


def section(view: View[Options]) -> Section:
    """Make the section; the learning rate has finished its decay at the last column alone."""
    trained = view.trained()
    curves = [view.results.histories.series(r.run, r.seed, VALIDATION_LOSS) for r in trained]
    first = same_steps(view.artifact.artifact, curves)[0]
    tokens = first.tokens
    if not tokens:
        raise DataError(f"{view.artifact.artifact}: its runs have no validation losses")
    places = {f"loss_{part}": first.nearest(part, 100) for part in PARTS}
    cells = []
    for row in view.rows:
        own = [(r, one.values) for r, one in zip(trained, curves, strict=True) if r.run == row.run]
        for name, place in places.items():
            seeds = seed_values([(result, values[place]) for result, values in own], _DECIMALS)
            cells.append(mean_cell(Place(row.run, name), seeds, _DECIMALS, view.paper))
    ending = view.reference()
    cells += paired_differences(view.rows, list(places), cells, _DECIMALS, ending)
    columns = [Column(id=n, header=f"{count(tokens[place])} ↓") for n, place in places.items()]
    notes = [
        "Validation loss in nats per token while training, by training tokens. Only at the last "
        "column has the learning rate finished its decay.",
        view.training_note(),
    ]
    if view.compared:
        columns += [
            Column(id=one.id + DIFFERENCE + ending, header=f"Δ {one.header.removesuffix(' ↓')}")
            for one in columns
        ]
    return section_of(view, columns, cells, notes + view.difference_note())


def figure(view: View[Options]) -> Figure:
    """Draw the curves of the first section, and the differences of all that follow training."""
    parts = view.sections
    look = looks({row.run: row.look for part in parts for row in part.rows})
    number = 1 + len(parts)
    figure, ((first, *others),) = panels(1, number, (3.9 * number, 3.9))
    loss_curves(first, parts[0], look)
    for axes, part in zip(others, parts, strict=True):
        loss_differences(axes, part, look)
    legend_below(figure, row_signs(view.rows, look))
    return figure
