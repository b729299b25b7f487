"""Decoding as a picture: tokens per second by context length, one panel a batch size."""

from statistics import median
from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.curves import Curve, draw
from difftransformer.reporting.drawing import legend_below, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.decoding import DecodingTimings
from difftransformer.reporting.rounds import quartile

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw the first section: medians, with the quartiles of the rounds as bands."""
    import matplotlib.pyplot as plt

    del histories
    part, timings = artifact.sections[0], DecodingTimings(results)
    contexts, batches = timings.config.contexts, timings.config.batches
    look = looks([row.run for row in part.rows])
    figure, panels = plt.subplots(
        1, len(batches), figsize=(4.2 * len(batches), 3.9), layout="constrained", squeeze=False
    )
    for axes, batch in zip(panels[0], batches, strict=True):
        for row in part.rows:
            found = [timings.speeds(row.run, (batch, context)) for context in contexts]
            low, high = ([quartile(speeds, which) for speeds in found] for which in (1, 3))
            curve = Curve(list(contexts), list(map(median, found)), low, high)
            draw(axes, curve, look[row.run], printable(row.label))
        axes.set_xscale("log")
        axes.set_xticks(contexts, list(map(str, contexts)))
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        tidy(axes, x="positions in the cache", y="tokens per second", title=f"Batch of {batch}")
    legend_below(figure, panels[0][0])
    return figure
