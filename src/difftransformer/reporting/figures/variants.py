"""The variants as a picture: loss beside the first row's, needles and speed, a line for each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.cells import DIFFERENCE
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import INK, looks
from difftransformer.reporting.forest import estimate, name_lines, seed_signs, sign
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.variants import NEEDLES, SPEED_RATIO, variants

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ASIDE = 0.38


class Panel(NamedTuple):
    """A column of the table, and the value that the first row has or is compared at."""

    title: str
    unit: str
    reference: float | None


_PANELS = {
    "valid" + DIFFERENCE: Panel("Δ Valid", "nats per token", 0.0),
    NEEDLES: Panel("Needles", "accuracy", None),
    SPEED_RATIO: Panel("Training speed", "tokens/s, ratio, median of rounds", 1.0),
}


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw a panel for each column; rows that a section has anew stand hollow below the first's."""
    import matplotlib.pyplot as plt

    del histories
    sections = [variants(artifact, part, results) for part in artifact.sections]
    known = {column.id for column in sections[0].columns}
    shown = {key: panel for key, panel in _PANELS.items() if key in known}
    height = 1.4 + 0.42 * len(sections[0].rows)
    figure, panels = plt.subplots(
        1, len(shown), figsize=(11, height), layout="constrained", sharey=True, squeeze=False
    )
    for axes, (key, panel) in zip(panels[0], shown.items(), strict=True):
        _panel(axes, sections, key, panel)
    signs = seed_signs(artifact.seeds)
    titles = [section.title for section in sections]
    signs += [sign("o", title, hollow=place > 0) for place, title in enumerate(titles)]
    figure.legend(handles=signs, loc="outside lower center", ncols=len(signs), fontsize=8)
    return figure


def _panel(axes: "Axes", sections: Sequence[Section], key: str, panel: Panel) -> None:
    rows = sections[0].rows
    look = looks([row.run for row in rows])
    if panel.reference is not None:
        axes.axvline(panel.reference, color=INK, lw=0.8)
    drawn = set()
    for number, section in enumerate(sections):
        for place, (row, first) in enumerate(zip(section.rows, rows, strict=True)):
            cell = section.cell(row.run, key)
            if cell is None or row.run in drawn:
                continue
            drawn.add(row.run)
            estimate(axes, place + _ASIDE * number, cell, look[first.run], hollow=number > 0)
    name_lines(axes, [row.label for row in rows], x=panel.unit, title=panel.title)
