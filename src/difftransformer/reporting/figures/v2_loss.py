"""Loss along training: the curves, and a panel of differences for each section."""

from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.drawing import legend_below, looks
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.loss_panels import loss_curves, loss_differences

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw the curves of the first section, and the differences of all that follow training."""
    import matplotlib.pyplot as plt

    del results  # the curves say it all
    parts = [part for part in artifact.sections if part.measures == "loss_by_tokens"]
    look = looks(list(dict.fromkeys(row.run for part in parts for row in part.rows)))
    figure, axes = plt.subplots(
        1, 1 + len(parts), figsize=(3.9 * (1 + len(parts)), 3.9), layout="constrained"
    )
    loss_curves(axes[0], artifact, parts[0], histories, look)
    for panel, part in zip(axes[1:], parts, strict=True):
        loss_differences(panel, artifact, part, histories, look)
    legend_below(figure, axes[0])
    return figure
