"""Attention on the first token as a picture: its share by layer."""

from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results, defined
from difftransformer.reporting.conditions import evaluated
from difftransformer.reporting.drawing import INK, legend_below, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.sinks import layer_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw the first section: a mark for each row and layer, and small ones for the seeds."""
    import matplotlib.pyplot as plt

    del histories
    part = artifact.sections[0]
    names = layer_names(artifact, part, results)
    look = looks([row.run for row in part.rows])
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for place, row in enumerate(part.rows):
        found = evaluated(artifact, part, [row], results)
        aside = 0.7 * ((place + 0.5) / len(part.rows) - 0.5)
        one = look[row.run]
        for layer, name in enumerate(names):
            shares = [defined(result, name) for result in found]
            axes.plot([layer + aside] * len(shares), shares, ".", color=one.colour, ms=3)
            mean = sum(shares) / len(shares)
            label = printable(row.label) if not layer else None
            axes.plot([layer + aside], [mean], one.marker, color=one.colour, ms=7, label=label)
    uniform = defined(evaluated(artifact, part, part.rows, results)[0], "uniform")
    axes.axhline(uniform, color=INK, lw=0.8, ls=":", label="equal weights")
    axes.set_xticks(range(len(names)), [str(layer + 1) for layer in range(len(names))])
    axes.set_ylim(bottom=0)
    tidy(axes, x="layer", y="share of attention on the first token", title=part.title)
    legend_below(figure, axes)
    return figure
