"""Panels of the validation loss while training, and of its differences to another row."""

from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice
from difftransformer.reporting.curves import by_tokens, draw, paired_by_tokens
from difftransformer.reporting.drawing import INK, Look, printable, tidy
from difftransformer.reporting.histories import Histories

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMN = "validation_loss"
_UNITS = {"billions": 1e9, "millions": 1e6, "thousands": 1e3}


def compared_rows(part: SectionSlice) -> list[RowSlice]:
    """Rows of a section that are compared with another."""
    return [row for row in part.rows if row.against is not None]


def loss_curves(
    axes: "Axes",
    artifact: ArtifactSlice,
    part: SectionSlice,
    histories: Histories,
    look: dict[str, Look],
) -> None:
    """Draw the validation loss of every row while training.

    Raises:
        UserError: a history is missing.
        DataError: a history lacks the column, or its seeds were measured at different tokens.
    """
    for row in part.rows:
        curve = by_tokens(histories, row.run, artifact.seeds, _COLUMN)
        draw(axes, curve, look[row.run], printable(row.label))
    tidy(axes, x="", y="nats per token", title="Validation loss")
    _tokens(axes)


def loss_differences(
    axes: "Axes",
    artifact: ArtifactSlice,
    part: SectionSlice,
    histories: Histories,
    look: dict[str, Look],
) -> None:
    """Draw the differences of the rows to those they are compared with, same seed.

    Raises:
        UserError: a history is missing.
        DataError: a history lacks the column, or two were measured at different tokens.
    """
    axes.axhline(0, color=INK, lw=0.8)
    for row in compared_rows(part):
        assert row.against is not None
        curve = paired_by_tokens(histories, row.run, row.against, artifact.seeds, _COLUMN)
        draw(axes, curve, look[row.run], printable(row.label))
    title = f"Difference to {printable(_reference(part))}, same seed"
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


def _reference(part: SectionSlice) -> str:
    labels = {row.run: row.label for row in part.rows}
    names = {labels[row.against] for row in part.rows if row.against is not None}
    return names.pop() if len(names) == 1 else "its reference"
