"""Panels of the validation loss while training, and of its differences to another row."""

from typing import Any

from difftransformer.reporting.charts import by_tokens, lines
from difftransformer.reporting.conditions import curve_tokens
from difftransformer.reporting.drawing import INK, Axes, Look, printable, tidy
from difftransformer.reporting.view import View

VALIDATION_LOSS = "validation_loss"
"""Column of a history."""
_UNITS = {"billions": 1e9, "millions": 1e6, "thousands": 1e3}


def loss_curves(axes: Axes, view: View[Any], look: dict[str, Look]) -> None:
    """Draw the validation loss of every row while training.

    Raises:
        UserError: a history is missing.
        DataError: a history lacks the column, or its seeds were measured at different tokens.
    """
    for row in view.rows:
        lines(axes, by_tokens(view.results.histories, row.run, view.seeds, VALIDATION_LOSS), look)
    part = curve_tokens(view.trained(*view.rows))  # a table is of the whole validation text
    title = "Validation loss while training" + (f", {part}" if part else "")
    tidy(axes, x="", y="nats per token", title=title)
    _tokens(axes)


def loss_differences(axes: Axes, view: View[Any], look: dict[str, Look]) -> None:
    """Draw the differences of the rows to those they are compared with, same seed.

    Raises:
        UserError: a history is missing.
        DataError: a history lacks the column, or two were measured at different tokens.
    """
    axes.axhline(0, color=INK, lw=0.8)
    histories = view.results.histories
    for row in view.compared_rows:
        lines(axes, by_tokens(histories, row.run, view.seeds, VALIDATION_LOSS, row.against), look)
    tidy(axes, x="", y="nats per token", title=difference_title(view))
    _tokens(axes)


def difference_title(view: View[Any]) -> str:
    """Title of differences to the row that all are compared with, or each to its own."""
    names = view.references
    reference = printable(names[0]) if len(names) == 1 else "its reference"
    return f"Difference to {reference}, same seed"


def _tokens(axes: Axes) -> None:
    """Count tokens in the largest unit that keeps the last one above 1."""
    last = axes.get_xlim()[1]
    name, unit = next(
        ((name, unit) for name, unit in _UNITS.items() if last >= unit), ("thousands", 1e3)
    )
    axes.xaxis.set_major_formatter(lambda tokens, _: f"{tokens / unit:g}")
    axes.set_xlabel(f"training tokens ({name})")
