"""The context RMS by position as a picture, with the published bounds as lines."""

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import Results, defined
from difftransformer.reporting.conditions import evaluated
from difftransformer.reporting.curves import Curve, draw
from difftransformer.reporting.drawing import INK, legend_below, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.context_bounds import published
from difftransformer.reporting.measures.context_rms import KINDS, places

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_COLUMNS = 4


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw a panel for each mechanism of the first section, with all readings and its bounds."""
    import matplotlib.pyplot as plt

    del histories
    part = artifact.sections[0]
    at = places(artifact, part, results)
    look = looks(list(KINDS))
    lines = -(-len(part.rows) // _COLUMNS)
    figure, grid = plt.subplots(
        lines, _COLUMNS, figsize=(12, 2.5 * lines + 0.6), layout="constrained", sharex=True,
        sharey=True, squeeze=False,
    )  # fmt: skip
    for axes in grid.ravel()[len(part.rows) :]:
        axes.set_axis_off()
    for place, (axes, row) in enumerate(zip(grid.ravel(), part.rows, strict=False)):
        _bounds(axes, artifact, row.run, at)
        found = evaluated(artifact, part, [row], results)
        for kind, title in KINDS.items():
            draw(axes, _curve(found, kind, at), look[kind], title)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(at, list(map(str, at)))
        axes.minorticks_off()
        lowest = place + _COLUMNS >= len(part.rows)
        axes.tick_params(labelbottom=lowest)
        tidy(axes, x="position n" if lowest else "", y="", title=printable(row.label))
    figure.supylabel("context RMS", fontsize=9)
    legend_below(
        figure, grid[0, 0], handles=[_bound_line([], [], "published bounds")], ncols=len(KINDS) + 1
    )
    return figure


def _curve(found: Sequence[Result], kind: str, at: list[int]) -> Curve:
    """Mean over seeds; the band holds the middle 90% of heads and windows."""

    def over_seeds(ending: str) -> list[float]:
        return [fmean(defined(result, f"{kind}_p{n}{ending}") for result in found) for n in at]

    return Curve(list(at), over_seeds(""), over_seeds("_low"), over_seeds("_high"))


def _bounds(axes: "Axes", artifact: ArtifactSlice, run: str, at: list[int]) -> None:
    """Draw a row's published bounds; a lower one of 0 is off any logarithmic axis."""
    known = published(artifact, run)
    if known is None:
        return
    axes.add_line(_bound_line(at, [known[2]] * len(at)))
    if known[1]:
        axes.add_line(_bound_line(at, [known[1] / n**0.5 for n in at]))


def _bound_line(x: Sequence[float], y: Sequence[float], label: str = "") -> "Line2D":
    from matplotlib.lines import Line2D

    return Line2D(x, y, ls=":", color=INK, lw=1.2, label=label)
