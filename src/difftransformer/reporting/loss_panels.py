"""Panels of the validation loss while training, and of its differences to another row."""

from typing import Any

from difftransformer.reporting.charts import draw_lines, token_points
from difftransformer.reporting.drawing import INK, Axes, RowStyle, escape_label, label_axes
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.table_notes import curve_tokens

VALIDATION_LOSS = "validation_loss"
"""Column of a history."""
_UNITS = {"billions": 1e9, "millions": 1e6, "thousands": 1e3}


def draw_loss_curves(axes: Axes, context: SectionContext[Any], look: dict[str, RowStyle]) -> None:
    """Draw the validation loss of every row while training.

    Raises:
        UserError: a history is missing.
        DataError: a history lacks the column, or its seeds were measured at different tokens.
    """
    for row in context.rows:
        draw_lines(
            axes,
            token_points(context.results.histories, row.run, context.seeds, VALIDATION_LOSS),
            look,
        )
    part = curve_tokens(
        context.train_results(*context.rows)
    )  # a table is of the whole validation text
    title = "Validation loss while training" + (f", {part}" if part else "")
    label_axes(axes, x="", y="nats per token", title=title)
    _tokens(axes)


def draw_loss_differences(
    axes: Axes, context: SectionContext[Any], look: dict[str, RowStyle]
) -> None:
    """Draw the differences of the rows to those they are compared with, same seed.

    Raises:
        UserError: a history is missing.
        DataError: a history lacks the column, or two were measured at different tokens.
    """
    axes.axhline(0, color=INK, lw=0.8)
    histories = context.results.histories
    for row in context.rows_with_baseline:
        draw_lines(
            axes,
            token_points(histories, row.run, context.seeds, VALIDATION_LOSS, row.baseline),
            look,
        )
    label_axes(axes, x="", y="nats per token", title=difference_title(context))
    _tokens(axes)


def difference_title(context: SectionContext[Any]) -> str:
    """Title of differences to the row that all are compared with, or each to its own."""
    names = context.baseline_labels
    reference = escape_label(names[0]) if len(names) == 1 else "its reference"
    return f"Difference to {reference}, same seed"


def _tokens(axes: Axes) -> None:
    """Count tokens in the largest unit that keeps the last one above 1."""
    last = axes.get_xlim()[1]
    name, unit = next(
        ((name, unit) for name, unit in _UNITS.items() if last >= unit), ("thousands", 1e3)
    )
    axes.xaxis.set_major_formatter(lambda tokens, _: f"{tokens / unit:g}")
    axes.set_xlabel(f"training tokens ({name})")
