"""Figures drawn in memory from synthetic results, so that tests can inspect their artists."""

from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
from fake_configs import SCALE, resolved_artifact
from fake_results import FakeResults

from difftransformer.config.resolved_artifacts import ResolvedArtifact
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import Results, load_results
from difftransformer.reporting.drawing import figure_style
from difftransformer.reporting.section_context import SectionContext, draw_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


def picture(name: str, fake: FakeResults, seeds: tuple[int, ...] = (0, 1, 2)) -> "Figure":
    """Draw a figure of the configuration."""
    return picture_of(
        resolved_artifact(name, "figure", seeds), load_results(fake.results, SCALE), fake
    )


def picture_of(artifact: ResolvedArtifact, results: Results, fake: FakeResults) -> "Figure":
    """Draw any figure."""
    with figure_style(artifact.artifact):
        figure = draw_figure(SectionContext[Any](artifact, artifact.sections[0], results))
    plt.close(figure)
    return figure


def changed(results: Results, suite: str, /, data: str = "", **metrics: float | None) -> Results:
    """Give all results of a suite other metrics, and their items another origin."""

    def changed(result: Result) -> Result:
        config = result.settings["config"] | ({"data": data} if data else {})
        update = {
            "metrics": result.metrics | metrics,
            "settings": result.settings | {"config": config},
        }
        return result.model_copy(update=update)

    evaluations = {
        key: changed(result) if key[0] == suite else result
        for key, result in results.evaluations.items()
    }
    return replace(results, evaluations=evaluations)


def of_row(figure: "Figure", axes: "Axes", label: str) -> list["Line2D"]:
    """Lines in the color that the one legend of a figure gives a row, and with data."""
    (legend,) = figure.legends
    signs = zip(legend.legend_handles, legend.get_texts(), strict=True)
    color = next(sign.get_color() for sign, text in signs if text.get_text() == label)
    return [line for line in axes.lines if line.get_color() == color and numbers(line)]


def numbers(line: "Line2D") -> list[float]:
    """Heights of a line where it has some."""
    return [float(y) for y in line.get_ydata() if isfinite(y)]


def legend_of(figure: "Figure") -> list[str]:
    """What the one legend of a figure names."""
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def hollow(axes: "Axes") -> list[float]:
    """Where the hollow marks are."""
    return [
        float(x)
        for line in axes.lines
        if line.get_mfc() == "white"
        for x, y in zip(*line.get_data(), strict=True)
        if isfinite(y)
    ]
