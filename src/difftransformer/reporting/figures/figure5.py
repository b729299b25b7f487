"""Retrieval after extension as heat maps of depth by context length, ours above the published."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.conditions import evaluated, shared_setting
from difftransformer.reporting.curves import draw, over_seeds
from difftransformer.reporting.drawing import Look, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.needles import accuracy, context_lengths, pair_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


class Panel(NamedTuple):
    """Accuracies of one model: means by depth and length [D, L], and by length of seeds [S, L]."""

    run: str
    label: str
    grid: list[list[float]]
    averages: list[list[float]]


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw the figure of the first section."""
    import matplotlib.pyplot as plt

    part = artifact.sections[0]
    asked = evaluated(artifact, part, part.rows, results)
    lengths = context_lengths(asked)
    depths: list[int] = shared_setting(asked, "config", "depths")
    ours = [_ours(artifact, part, run, results, lengths, depths) for run in range(len(part.rows))]
    published, their_lengths = _published(artifact, depths)
    look = looks([row.run for row in part.rows])
    rows = 2 if published else 1
    figure = plt.figure(figsize=(12.5, 3.0 * rows), layout="constrained")
    parts = figure.subfigures(rows, 1, squeeze=False, hspace=0.03).ravel()
    _row(parts[0], ours, lengths, depths, look, "")
    if published:
        _row(parts[1], published, their_lengths, depths, look, ", published")
    return figure


def _ours(
    artifact: ArtifactSlice,
    part: SectionSlice,
    index: int,
    results: Results,
    lengths: Sequence[int],
    depths: Sequence[int],
) -> Panel:
    row = part.rows[index]
    found = evaluated(artifact, part, [row], results)
    setting = pair_name(shared_setting(found, "config", "pairs")[0])

    def mean(ending: str) -> float:
        return sum(accuracy(result, f"{setting}_{ending}") for result in found) / len(found)

    grid = [[mean(f"l{length}_d{depth}") for length in lengths] for depth in depths]
    averages = [[accuracy(one, f"{setting}_l{length}") for length in lengths] for one in found]
    return Panel(row.run, row.label, grid, averages)


def _published(artifact: ArtifactSlice, depths: Sequence[int]) -> tuple[list[Panel], list[int]]:
    """Published panels of the rows shown, none where our depths are others, and their lengths."""
    table = artifact.paper
    shown = [row.run for row in artifact.sections[0].rows]
    rows = {} if table is None else {run: table.rows[run] for run in shown if run in table.rows}
    known = {
        run: {name: float(value) for name, value in row.values.items() if value is not None}
        for run, row in rows.items()
    }
    names = {name for values in known.values() for name in values}
    lengths = sorted(int(name[1:]) for name in names if name[0] == "l" and name[1:].isdigit())
    panels: list[Panel] = []
    wanted = {f"l{length}_d{depth}" for length in lengths for depth in depths}
    if not all(values.keys() >= wanted for values in known.values()):
        return panels, lengths
    for run, values in known.items():
        grid = [[values[f"l{length}_d{depth}"] for length in lengths] for depth in depths]
        panels.append(
            Panel(run, rows[run].label, grid, [[values[f"l{length}"] for length in lengths]])
        )
    return panels, lengths


def _row(
    figure: "SubFigure",
    panels: Sequence[Panel],
    lengths: Sequence[int],
    depths: Sequence[int],
    look: dict[str, Look],
    source: str,
) -> None:
    """Draw one heat map a model, and beside them the means by length of all."""
    breadths = [1.0] * len(panels) + [1.15]
    places = figure.subplots(1, len(panels) + 1, gridspec_kw={"width_ratios": breadths})
    names = [f"{n // 1024}K" if n % 1024 == 0 else str(n) for n in lengths]
    for index, (axes, panel) in enumerate(zip(places, panels, strict=False)):
        _heat(axes, panel.grid, names, [f"{depth}" for depth in depths] if index == 0 else [])
        tidy(axes, x="context length, tokens", y="depth, %" if index == 0 else "")
        axes.set_title(printable(panel.label + source, 30), fontsize=9, pad=6)
    _averages(places[-1], panels, names, look)


def _heat(axes: "Axes", grid: list[list[float]], lengths: list[str], depths: list[str]) -> None:
    import seaborn

    dense = len(lengths) > 5
    seaborn.heatmap(
        grid, ax=axes, vmin=0, vmax=1, cmap=seaborn.color_palette("mako", as_cmap=True),
        annot=True, fmt=".2f", annot_kws={"size": 6.5 if dense else 8}, cbar=False,
        linewidths=0.8, xticklabels=lengths, yticklabels=depths or False,
    )  # fmt: skip
    axes.tick_params(length=0, labelsize=7.5)
    axes.tick_params(axis="y", labelrotation=0)
    axes.tick_params(axis="x", labelrotation=0)


def _averages(
    axes: "Axes", panels: Sequence[Panel], lengths: list[str], look: dict[str, Look]
) -> None:
    for panel in panels:
        curve = over_seeds(range(len(lengths)), panel.averages)
        draw(axes, curve, look[panel.run], printable(panel.label))
        colour = look[panel.run].colour
        axes.plot(curve.x, curve.mean, look[panel.run].marker, color=colour, ms=4.5, mew=0)
    axes.set_xticks(range(len(lengths)), lengths)
    axes.tick_params(labelsize=7.5)
    axes.set_ylim(0, 1.05)
    tidy(axes, x="context length, tokens", y="accuracy")
    axes.set_title("Mean over depths", fontsize=9, pad=6)
    axes.legend(fontsize=7, loc="best", handlelength=2.4)
