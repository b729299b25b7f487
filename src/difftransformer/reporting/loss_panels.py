"""Panels of the validation loss during training and of its differences to the baselines."""

from typing import Any

from difftransformer.reporting.charts import draw_lines, token_points
from difftransformer.reporting.drawing import INK, Axes, RowStyle, escape_label, label_axes
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.table_notes import curve_tokens

VALIDATION_LOSS = "validation_loss"
"""Column of a training history."""
_UNITS = {"billions": 1e9, "millions": 1e6, "thousands": 1e3}


def draw_loss_curves(axes: Axes, context: SectionContext[Any], styles: dict[str, RowStyle]) -> None:
    """Draw the validation loss of every row over the training tokens.

    Raises:
        UserError: A history is missing.
        DataError: A history lacks the column, or seeds were measured at different tokens.
    """
    for row in context.rows:
        draw_lines(
            axes,
            token_points(context.results.histories, row.run, context.seeds, VALIDATION_LOSS),
            styles,
        )
    part = curve_tokens(
        context.train_results(*context.rows)
    )  # tables use the whole validation text
    title = "Validation loss during training" + (f", {part}" if part else "")
    label_axes(axes, x="", y="nats per token", title=title)
    _tokens(axes)


def draw_loss_differences(
    axes: Axes, context: SectionContext[Any], styles: dict[str, RowStyle]
) -> None:
    """Draw each row's difference in validation loss to its baseline, paired by seed, over tokens.

    Raises:
        UserError: A history is missing.
        DataError: A history lacks the column, or histories were measured at different tokens.
    """
    axes.axhline(0, color=INK, lw=0.8)
    histories = context.results.histories
    for row in context.rows_with_baseline:
        draw_lines(
            axes,
            token_points(histories, row.run, context.seeds, VALIDATION_LOSS, row.baseline),
            styles,
        )
    label_axes(axes, x="", y="nats per token", title=difference_title(context))
    _tokens(axes)


def difference_title(context: SectionContext[Any]) -> str:
    """Return the title of a panel of differences, which names the baseline if there is only one."""
    names = context.baseline_labels
    reference = escape_label(names[0]) if len(names) == 1 else "its baseline"
    return f"Difference to {reference}, same seed"


def _tokens(axes: Axes) -> None:
    """Label the x axis in the largest unit in which its end is at least 1."""
    last = axes.get_xlim()[1]
    name, unit = next(
        ((name, unit) for name, unit in _UNITS.items() if last >= unit), ("thousands", 1e3)
    )
    axes.xaxis.set_major_formatter(lambda tokens, _: f"{tokens / unit:g}")
    axes.set_xlabel(f"training tokens ({name})")
