"""Figure 9: mean accuracy on the sets of mathematics by tokens of stage 1, ours and published."""

from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.config.paper_values import PaperTable
from difftransformer.config.suites.base import AVERAGE
from difftransformer.reporting.collect import Results, defined
from difftransformer.reporting.conditions import evaluated, stand_in_title
from difftransformer.reporting.curves import draw, over_seeds
from difftransformer.reporting.drawing import Look, legend_below, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.mathematics import accuracy, kept_tokens, stand_in
from difftransformer.reporting.numbers import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw the first section; published curves have axes of their own."""
    import matplotlib.pyplot as plt

    del histories  # accuracies are measured after training, on weights it kept
    part = artifact.sections[0]
    look = looks([row.run for row in part.rows])
    panels = 1 + (artifact.paper is not None)
    figure, grid = plt.subplots(
        1, panels, figsize=(1 + 4.4 * panels, 3.9), layout="constrained", squeeze=False
    )
    _ours(grid[0][0], artifact, part, results, look)
    if artifact.paper is not None:
        _published(grid[0][1], part, artifact.paper, look)
    legend_below(figure, *grid[0], ncols=3)
    return figure


def _ours(
    axes: "Axes",
    artifact: ArtifactSlice,
    part: SectionSlice,
    results: Results,
    look: dict[str, Look],
) -> None:
    items = stand_in(evaluated(artifact, part, part.rows, results))
    for row in part.rows:
        found = evaluated(artifact, part, [row], results)
        kept = kept_tokens(found)
        last = int(defined(results.training(row.run, artifact.seeds[0]), "tokens"))
        names = [*(f"{AVERAGE}_t{tokens}" for tokens in kept), AVERAGE]
        curve = over_seeds(
            [*kept, last], [[accuracy(result, name) for name in names] for result in found]
        )
        draw(axes, curve, look[row.run], printable(row.label))
        axes.plot(curve.x, curve.mean, look[row.run].marker, color=look[row.run].colour, ms=4.5)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(lambda tokens, _: count(tokens))
    tidy(
        axes,
        x="tokens of stage 1",
        y="mean accuracy, %",
        title=stand_in_title("Mean over the sets", items),
    )


def _published(axes: "Axes", part: SectionSlice, paper: PaperTable, look: dict[str, Look]) -> None:
    for row in part.rows:
        curve = paper.series.get(row.run)
        if curve is not None:
            axes.plot(
                curve.x, curve.y, look[row.run].marker, color=look[row.run].colour, ls=(0, (4, 2)),
                lw=1.4, ms=4.5, mfc="white", label=f"{printable(row.label)}, published",
            )  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(lambda tokens, _: count(tokens))
    tidy(axes, x="tokens of stage 1", y="mean accuracy, %", title=f"Published: {paper.scale}")
