"""Table 7 as a picture: ratios of throughput with their spread, published ones beside them."""

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.drawing import INK, Look, legend_below, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.throughput import MODES, Timings
from difftransformer.reporting.rounds import quartile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ASIDE = 0.11


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw a panel for each mode: shapes from left to right, then the published ones."""
    import matplotlib.pyplot as plt

    del histories
    timings = Timings(results)
    compared = [row for part in artifact.sections for row in part.rows if row.against]
    look = looks([artifact.sections[0].rows[0].run, *(row.run for row in compared)])
    shapes = _shapes(artifact, timings)
    figure, panels = plt.subplots(
        1, len(MODES), figsize=(11, 4.2), layout="constrained", sharey=True
    )
    for axes, (mode, title) in zip(panels, MODES.items(), strict=True):
        axes.axhline(1.0, color=INK, lw=0.9)
        for place, row in enumerate(compared):
            aside = _ASIDE * (place - (len(compared) - 1) / 2)
            _measured(axes, timings, row, mode, look[row.run], aside)
            _published(axes, artifact, row, mode, look[row.run], list(shapes))
        axes.set_xticks(range(len(shapes)), list(shapes.values()))
        axes.set_xlim(-0.5, len(shapes) - 0.5)
        tidy(axes, x="", y="tokens/s, ratio", title=title)
        axes.grid(axis="x", visible=False)
    panels[1].set_ylabel("")
    legend_below(figure, panels[0])
    return figure


def _shapes(artifact: ArtifactSlice, timings: Timings) -> dict[str, str]:
    """Shapes with the names they are drawn under, the published ones last."""
    shown = {name: shape.label for name, shape in timings.config.shapes.items()}
    values = [] if artifact.paper is None else [row.values for row in artifact.paper.rows.values()]
    names = [name.removesuffix("_training") for one in values for name in one]
    for name in names:
        if not name.endswith("_forward"):
            shown.setdefault(name, f"{name.upper().replace('_', ', ')}\npublished")
    return shown


def _measured(
    axes: "Axes", timings: Timings, row: RowSlice, mode: str, look: Look, aside: float
) -> None:
    assert row.against is not None
    for place, shape in enumerate(timings.config.shapes):
        ratios = timings.ratios(shape, row.run, row.against, mode)
        x = place + aside
        axes.plot([x] * len(ratios), ratios, ".", color=look.colour, ms=3, alpha=0.35, mew=0)
        axes.plot([x, x], [quartile(ratios, 1), quartile(ratios, 3)], color=look.colour, lw=2)
        axes.plot(
            [x], [median(ratios)], look.marker, color=look.colour, ms=6, mec="white", mew=0.5,
            label=printable(row.label) if place == 0 else "",
        )  # fmt: skip


def _published(
    axes: "Axes",
    artifact: ArtifactSlice,
    row: RowSlice,
    mode: str,
    look: Look,
    shapes: Sequence[str],
) -> None:
    """Ratios of the printed tokens per second, hollow."""
    rows = {} if artifact.paper is None else artifact.paper.rows
    if row.run not in rows or row.against not in rows:
        return
    ours, theirs = rows[row.run].values, rows[row.against].values
    for place, shape in enumerate(shapes):
        one, two = ours.get(f"{shape}_{mode}"), theirs.get(f"{shape}_{mode}")
        if one is not None and two is not None:
            axes.plot([place], [one / two], look.marker, mec=look.colour, mfc="white", ms=6)
