"""Retrieval as a picture: accuracy by N, and the curves of learning to bind, seed by seed."""

from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice
from difftransformer.errors import UserError
from difftransformer.reporting.collect import Results, metric
from difftransformer.reporting.conditions import shared_setting, trainings
from difftransformer.reporting.curves import draw, over_seeds
from difftransformer.reporting.drawing import FAINT, INK, SOFT, Look, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.recall import accuracy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 4
_ASIDE = 0.022  # octaves between neighbouring rows, so that equal curves can be told apart


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw the figure of the first section."""
    import matplotlib.pyplot as plt

    part = artifact.sections[0]
    look = looks([row.run for row in part.rows])
    lines = -(-len(part.rows) // _COLUMNS)
    figure = plt.figure(figsize=(11, 3.4 + 1.9 * lines), layout="constrained")
    halves = figure.subfigures(2, 1, height_ratios=(3.4, 1.9 * lines), hspace=0.04, squeeze=False)
    top, bottom = halves.ravel()
    _by_needles(top.subplots(), artifact, part, results, look)
    probe = shared_setting(trainings(part.rows, artifact.seeds, results), "training", "probe")
    grid = bottom.subplots(lines, _COLUMNS, sharex=True, sharey=True, squeeze=False).ravel()
    for place, row in enumerate(part.rows):
        axes = grid[place]
        _learning(axes, artifact, row, results, histories, probe, look[row.run])
        lowest = place + _COLUMNS >= len(part.rows)
        axes.tick_params(labelbottom=lowest)
        axes.set_xlabel("step" if lowest else "")
        if place % _COLUMNS:
            axes.set_ylabel("")
    for axes in grid[len(part.rows) :]:
        axes.set_visible(False)
    return figure


def _by_needles(
    axes: "Axes",
    artifact: ArtifactSlice,
    part: SectionSlice,
    results: Results,
    look: dict[str, Look],
) -> None:
    guessing = [1 / n for n in part.needles]
    axes.plot(part.needles, guessing, color=INK, lw=1, ls=(0, (2, 2)), label="guessing, 1/N")
    for place, row in enumerate(part.rows):
        aside = 2 ** (_ASIDE * (place - (len(part.rows) - 1) / 2))
        curve = over_seeds(
            [n * aside for n in part.needles],
            [_accuracies(part, row, seed, results) for seed in artifact.seeds],
        )
        draw(axes, curve, look[row.run], printable(row.label))
        axes.plot(
            curve.x, curve.mean, look[row.run].marker, color=look[row.run].colour, ms=4.5, mew=0
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(part.needles, [str(n) for n in part.needles])
    axes.minorticks_off()
    axes.set_ylim(0, 1.04)
    tidy(axes, x="pairs in the row, N", y="accuracy", title="Accuracy after training")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=2.6)


def _accuracies(part: SectionSlice, row: RowSlice, seed: int, results: Results) -> list[float]:
    result = results.evaluation(part.suites[0], row.run, seed)
    found = [metric(result, accuracy(n)) for n in part.needles]
    values = [value for value in found if value is not None]
    if len(values) < len(found):
        raise UserError(f"{result.job_id}: an accuracy is undefined: rerun the evaluation")
    return values


def _learning(
    axes: "Axes",
    artifact: ArtifactSlice,
    row: RowSlice,
    results: Results,
    histories: Histories,
    probe: dict[str, float],
    look: Look,
) -> None:
    """Probe accuracy by step, one line a seed, a dot where the seed binds."""
    needles, threshold = int(probe["bind_needles"]), probe["bind_threshold"]
    axes.axhline(threshold, color=FAINT, lw=1.2)
    axes.axhline(1 / needles, color=INK, lw=0.8, ls=(0, (2, 2)))
    bound = 0
    for seed in artifact.seeds:
        series = histories.series(row.run, seed, accuracy(needles))
        axes.plot(series.steps, series.values, color=look.colour, lw=1.1, alpha=0.85)
        step = metric(results.training(row.run, seed), "steps_to_bind")
        if step is not None:
            bound += 1
            height = series.values[series.steps.index(int(step))]
            axes.plot([step], [height], "o", color=look.colour, ms=5, mec="white", mew=0.8)
    tidy(axes, x="", y=f"accuracy, N = {needles}")
    axes.set_title(printable(row.label, 30), fontsize=8.5, pad=6)
    axes.text(
        0.98, 0.5, f"{bound}/{len(artifact.seeds)} bind", transform=axes.transAxes,
        ha="right", va="center", color=SOFT, fontsize=8,
    )  # fmt: skip
    axes.set_ylim(0, 1.04)
