"""Figure 8: scores by bits, one panel a section and one for the published curves."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.reporting.collect import Results, defined
from difftransformer.reporting.conditions import evaluated
from difftransformer.reporting.curves import draw, over_seeds
from difftransformer.reporting.drawing import INK, Look, legend_below, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.quantised import (
    WHAT,
    bits_of,
    chance_of,
    column,
    score_name,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Widths = Sequence[int | None]
_COLUMNS = 4


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw sections that share a suite in one line, the published curves behind the first."""
    import matplotlib.pyplot as plt

    del histories
    suites = list(dict.fromkeys(part.suites[0] for part in artifact.sections))
    figure, grid = plt.subplots(
        len(suites), _COLUMNS, figsize=(13, 0.7 + 3.1 * len(suites)), layout="constrained",
        squeeze=False,
    )  # fmt: skip
    for axes in grid.ravel():
        axes.set_visible(False)
    for line, suite in enumerate(suites):
        parts = [part for part in artifact.sections if part.suites[0] == suite]
        look = looks([row.run for row in parts[0].rows])
        for place, part in enumerate(parts):
            axes = grid[line, place]
            axes.set_visible(True)
            if place:
                axes.sharey(grid[line, 0])
            _section(axes, artifact, part, results, look)
            axes.set_ylabel("" if place else axes.get_ylabel())
    first = artifact.sections[0]
    if artifact.paper is not None:
        published = grid[0, -1]
        published.set_visible(True)
        _published(published, artifact, first, bits_of(artifact, first, results))
    legend_below(figure, grid[0, 0])
    return figure


def _section(
    axes: "Axes",
    artifact: ArtifactSlice,
    part: SectionSlice,
    results: Results,
    look: dict[str, Look],
) -> None:
    widths: Widths = [None, *bits_of(artifact, part, results)]
    measured = evaluated(artifact, part, part.rows, results)
    chance = chance_of(measured)
    if chance is not None:
        axes.axhline(chance, color=INK, lw=0.8, ls=(0, (2, 2)), label="guessing")
    for row in part.rows:
        scores = [_scores(part, row.run, seed, widths, results) for seed in artifact.seeds]
        curve = over_seeds(range(len(widths)), scores)
        draw(axes, curve, look[row.run], printable(row.label))
        axes.plot(
            curve.x, curve.mean, look[row.run].marker, color=look[row.run].colour, ms=4.5, mew=0
        )
    _axes(axes, widths, score_name(measured), part.title.partition(":")[0])


def _scores(
    part: SectionSlice, run: str, seed: int, widths: Widths, results: Results
) -> list[float]:
    result = results.evaluation(part.suites[0], run, seed)
    what = WHAT[part.measures]
    names = ["score_unquantised" if bits is None else f"score_{what}_b{bits}" for bits in widths]
    return [defined(result, name) for name in names]


def _published(
    axes: "Axes", artifact: ArtifactSlice, part: SectionSlice, widths: Sequence[int]
) -> None:
    """Draw the published rows that stand beside ours, hollow."""
    assert artifact.paper is not None
    look = looks([row.run for row in part.rows])
    for row in part.rows:
        published = artifact.paper.rows.get(row.run)
        if published is None:
            continue
        found = [(place, published.values.get(column(part, bits)))
                 for place, bits in enumerate(widths)]  # fmt: skip
        points = [(place, float(value)) for place, value in found if value is not None]
        one = look[row.run]
        axes.plot(
            [place for place, _ in points], [value for _, value in points], color=one.colour,
            ls=one.dash, lw=1.4, marker=one.marker, mfc="white", ms=5,
        )  # fmt: skip
    _axes(axes, list(widths), "HellaSwag, share right", "Published: attention logits")


def _axes(axes: "Axes", widths: Widths, score: str, title: str) -> None:
    axes.set_xticks(range(len(widths)), ["exact" if bits is None else str(bits) for bits in widths])
    tidy(axes, x="bits", y=score, title=title)
