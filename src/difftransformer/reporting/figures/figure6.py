"""Many-shot accuracy by the number of demonstrations, one panel a set, above the published."""

from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.reporting.collect import Results, defined
from difftransformer.reporting.conditions import evaluated, shared_setting
from difftransformer.reporting.curves import Curve, draw, over_seeds
from difftransformer.reporting.drawing import (
    FAINT,
    SOFT,
    Look,
    legend_below,
    looks,
    printable,
    tidy,
)
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.many_shot import (
    accuracy,
    demonstrations,
    plateau,
    section_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 34


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw one column a section: ours, and what is published of the same set."""
    import matplotlib.pyplot as plt

    del histories  # curves are over demonstrations, not over steps
    parts = artifact.sections
    look = looks([row.run for row in parts[0].rows])
    rows = 1 if artifact.paper is None else 2
    figure, grid = plt.subplots(
        rows, len(parts), figsize=(3.1 * len(parts), 3.1 * rows), layout="constrained",
        squeeze=False, sharey="row",
    )  # fmt: skip
    for column, part in enumerate(parts):
        _measured(grid[0][column], artifact, part, results, look)
        if artifact.paper is not None:
            _published(grid[1][column], artifact, part, results, look)
        for axes in grid[:, column]:
            axes.set_ylim(0, 102)
            if column:
                axes.set_ylabel("")
    legend_below(figure, grid[0][0], ncols=6)
    return figure


def _measured(
    axes: "Axes",
    artifact: ArtifactSlice,
    part: SectionSlice,
    results: Results,
    look: dict[str, Look],
) -> None:
    asked = evaluated(artifact, part, part.rows, results)
    numbers = demonstrations(asked)
    late = plateau(numbers)
    axes.axvspan(late[0], late[-1], color=FAINT, alpha=0.35, lw=0)
    axes.axhline(100 * defined(asked[0], "chance"), color=SOFT, lw=0.9, ls=(0, (4, 3)))
    for row in part.rows:
        found = evaluated(artifact, part, [row], results)
        by_seed = [[accuracy(one, number) for number in numbers] for one in found]
        _curve(axes, over_seeds(numbers, by_seed), look[row.run], printable(row.label))
    tidy(axes, x="demonstrations", y="accuracy, %")
    axes.set_title(printable(section_title(part, asked), _WIDTH), fontsize=8.5, pad=6)


def _published(
    axes: "Axes",
    artifact: ArtifactSlice,
    part: SectionSlice,
    results: Results,
    look: dict[str, Look],
) -> None:
    assert artifact.paper is not None
    task = shared_setting(evaluated(artifact, part, part.rows, results), "config", "task")
    start = f"{task}_n"
    for row in part.rows:
        if row.run not in artifact.paper.rows:
            continue
        values = artifact.paper.rows[row.run].values
        points = sorted(
            (int(name[len(start) :]), float(value))
            for name, value in values.items()
            if value is not None and name.startswith(start) and name[len(start) :].isdigit()
        )
        axes.plot(
            [x for x, _ in points], [y for _, y in points], look[row.run].marker,
            color=look[row.run].colour, ls=(0, (4, 2)), lw=1.2, ms=3.2, mfc="white",
        )  # fmt: skip
    tidy(axes, x="demonstrations", y="accuracy, %, published")
    axes.set_title(printable(f"{part.title}, published", _WIDTH), fontsize=8.5, pad=6)


def _curve(axes: "Axes", curve: Curve, look: Look, label: str) -> None:
    draw(axes, curve, look, label)
    axes.plot(curve.x, curve.mean, look.marker, color=look.colour, ms=3.8, mew=0)
