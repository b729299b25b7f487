"""The context RMS by position as a picture, with the published bounds as lines."""

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import Results, metric
from difftransformer.reporting.conditions import evaluated
from difftransformer.reporting.curves import Curve, draw
from difftransformer.reporting.drawing import SOFT, legend_below, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.context_bounds import published, upper_name
from difftransformer.reporting.measures.context_rms import KINDS, places

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw a panel for each reading of the first section."""
    import matplotlib.pyplot as plt

    del histories
    part = artifact.sections[0]
    at = places(artifact, part, results)
    look = looks([row.run for row in part.rows])
    figure, panels = plt.subplots(
        1, len(KINDS), figsize=(12, 4.4), layout="constrained", sharey=True
    )
    for axes, (kind, title) in zip(panels, KINDS.items(), strict=True):
        _bounds(axes, artifact, part, at)
        for row in part.rows:
            found = evaluated(artifact, part, [row], results)
            draw(axes, _curve(found, kind, at), look[row.run], printable(row.label))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(at, list(map(str, at)))
        axes.minorticks_off()
        tidy(axes, x="position n", y="context RMS" if kind == "weights" else "", title=title)
    legend_below(figure, panels[0], ncols=5)
    return figure


def _curve(found: Sequence[Result], kind: str, at: list[int]) -> Curve:
    """Mean over seeds; the band holds the middle 90% of heads and windows."""

    def over_seeds(ending: str) -> list[float]:
        return [
            fmean(metric(result, f"{kind}_p{n}{ending}") or 0.0 for result in found) for n in at
        ]

    return Curve(list(at), over_seeds(""), over_seeds("_low"), over_seeds("_high"))


def _bounds(axes: "Axes", artifact: ArtifactSlice, part: SectionSlice, at: list[int]) -> None:
    """Draw each published bound once; a lower bound of 0 is off any logarithmic axis."""
    known = {published(artifact, row.run) for row in part.rows} - {None}
    falling = sorted({one[1] for one in known if one and one[1]})
    for factor in falling:
        axes.plot(at, [factor / n**0.5 for n in at], ":", color=SOFT, lw=1.2, label="bound 1/√n")
    for upper in sorted({one[2] for one in known if one}):
        label = f"bound {upper_name(upper)}"
        axes.plot(at, [upper] * len(at), ls=(0, (1, 3)), color=SOFT, lw=1.2, label=label)
