"""Panels of the validation loss while training, and of its differences to another row."""

from typing import TYPE_CHECKING, Any

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.reporting.curves import by_tokens, draw, paired_by_tokens
from difftransformer.reporting.drawing import INK, Look, printable, tidy
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VALIDATION_LOSS = "validation_loss"
"""Column of a history."""
_UNITS = {"billions": 1e9, "millions": 1e6, "thousands": 1e3}


def compared_rows(view: View[Any]) -> list[RowSlice]:
    """Rows of a section that are compared with another."""
    return [row for row in view.rows if row.against is not None]


def loss_curves(axes: "Axes", view: View[Any], look: dict[str, Look]) -> None:
    """Draw the validation loss of every row while training.

    Raises:
        UserError: a history is missing.
        DataError: a history lacks the column, or its seeds were measured at different tokens.
    """
    for row in view.rows:
        curve = by_tokens(view.results.histories, row.run, view.seeds, VALIDATION_LOSS)
        draw(axes, curve, look[row.run], printable(row.label))
    tidy(axes, x="", y="nats per token", title="Validation loss")
    _tokens(axes)


def loss_differences(axes: "Axes", view: View[Any], look: dict[str, Look]) -> None:
    """Draw the differences of the rows to those they are compared with, same seed.

    Raises:
        UserError: a history is missing.
        DataError: a history lacks the column, or two were measured at different tokens.
    """
    axes.axhline(0, color=INK, lw=0.8)
    for row in compared_rows(view):
        assert row.against is not None
        histories = view.results.histories
        curve = paired_by_tokens(histories, row.run, row.against, view.seeds, VALIDATION_LOSS)
        draw(axes, curve, look[row.run], printable(row.label))
    labels = {row.run: row.label for row in view.rows}
    names = {labels[row.against] for row in view.rows if row.against is not None}
    reference = names.pop() if len(names) == 1 else "its reference"
    title = f"Difference to {printable(reference)}, same seed"
    tidy(axes, x="", y="nats per token", title=title)
    _tokens(axes)


def _tokens(axes: "Axes") -> None:
    """Count tokens in the largest unit that keeps the last one above 1."""
    last = axes.get_xlim()[1]
    name, unit = next(
        ((name, unit) for name, unit in _UNITS.items() if last >= unit), ("thousands", 1e3)
    )
    axes.xaxis.set_major_formatter(lambda tokens, _: f"{tokens / unit:g}")
    axes.set_xlabel(f"training tokens ({name})")
