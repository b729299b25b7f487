"""Language modelling: what each row is, validation loss, AR-Hit and Others, and their differences.

The picture has loss curves, their differences to a row, and a forest plot at the end.
"""

from collections.abc import Sequence
from dataclasses import replace

from difftransformer.config.evaluation import Options
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import DIFFERENCE
from difftransformer.reporting.charts import cell_estimates, cells_of, estimates, seed_signs
from difftransformer.reporting.collect import defined
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import INK, Figure, legend_below, printable, sign, tidy
from difftransformer.reporting.loss_panels import loss_curves, loss_differences
from difftransformer.reporting.numbers import count
from difftransformer.reporting.panels import halves, row_signs
from difftransformer.reporting.sections import Metric, metric_section
from difftransformer.reporting.view import View

_LOSSES = (
    Metric("valid", "Valid ↓", "loss", compared=True),
    Metric("ar_hit", "AR-Hit ↓", "ar_hit_loss"),
    Metric("others", "Others ↓", "others_loss"),
)


_FEW = 1000
"""Tokens below which a slice is marked: the standard error of its loss is some tenth of a nat."""
_FEW_MARK = " †"


def section(view: View[Options]) -> Section:
    """Make the section: losses in nats per token, and paired differences."""
    suite, first = view.suite, view.evaluated()[0]
    few = {
        loss.id: fewest
        for loss in _LOSSES
        if (fewest := _fewest(view.evaluated(), f"{loss.id}_tokens")) is not None and fewest < _FEW
    }
    losses = [
        replace(loss, header=loss.header + _FEW_MARK) if loss.id in few else loss
        for loss in _LOSSES
    ]
    notes = [
        f"AR-Hit: last tokens of n-grams with n = {suite.n} that stand earlier in the context and "
        f"at most {suite.max_count} times in the training data, "
        f"{defined(first, 'ar_hit_share'):.1%} of {count(defined(first, 'tokens'))} held-out "
        "tokens; Others: the rest.",
        view.training_note(),
    ]
    notes += [
        f"†: of {number} tokens, too few for its decimals to tell rows apart."
        for number in sorted(set(few.values()))
    ]
    return metric_section(view, losses, decimals=3, notes=notes, facts=True)


def _fewest(results: Sequence[Result], name: str) -> int | None:
    """Tokens of a slice where it has the fewest; None: not recorded."""
    known = [int(number) for one in results if (number := one.metrics.get(name)) is not None]
    return min(known, default=None)


def figure(view: View[Options]) -> Figure:
    """Draw the first section; its rows but one are compared with that one."""
    figure, top, bottom = halves((11, 7.4), (1.2, 1), 0.04)
    left, right = top.subplots(1, 2)
    loss_curves(left, view, view.look)
    loss_differences(right, view, view.look)
    top.legend(
        handles=row_signs(view.rows, view.look), loc="outside upper center", ncols=4, fontsize=8,
        handlelength=2.6,
    )  # fmt: skip
    measured = section(view)
    for axes, loss in zip(bottom.subplots(1, len(_LOSSES), sharey=True), _LOSSES, strict=True):
        axes.axvline(0, color=INK, lw=0.8)
        found = cell_estimates(cells_of(measured, [loss.id + DIFFERENCE]), by="row")
        places = {row.run: printable(row.label, 28) for row in view.compared_rows}
        estimates(axes, found, view.look, places, along="y", dodge=False)
        axes.locator_params(axis="x", nbins=5)  # labels of small steps touch where there are more
        title = f"Δ {loss.header.removesuffix(' ↓')} at the end"
        tidy(axes, x="nats per token", y="", title=title)
    signs = seed_signs(view.seeds)
    if view.artifact.paper is not None:
        signs.append(sign(f"published ({view.artifact.paper.scale})", hollow=True))
    legend_below(bottom, signs)
    return figure
