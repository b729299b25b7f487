"""Activation outliers as a picture: how many values are how large, the largest ones marked."""

import json
from itertools import accumulate
from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.errors import DataError
from difftransformer.reporting.collect import Results, metric
from difftransformer.reporting.drawing import Look, legend_below, looks, printable, tidy
from difftransformer.reporting.histories import Histories

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FILE = "histograms.json"
_LARGEST_SHARE = 0.7  # the small values look alike
_X = {"attention_logits": "|logit|", "hidden_states": "|activation|"}


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw a panel for each section."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    del histories
    figure = plt.figure(figsize=(11, 4.2), layout="constrained")
    panels = figure.subplots(1, len(artifact.sections), squeeze=False)[0]
    for axes, part in zip(panels, artifact.sections, strict=True):
        look = looks([row.run for row in part.rows])
        for place, row in enumerate(part.rows):
            _row(axes, artifact, part, place, results, look[row.run])
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        tidy(axes, x=_X[part.measures], y="share of values above x", title=part.title)
    legend_below(figure, panels[0])
    return figure


def _row(
    axes: "Axes",
    artifact: ArtifactSlice,
    part: SectionSlice,
    place: int,
    results: Results,
    look: Look,
) -> None:
    """One model: its mean curve, and on the axis the largest value of each seed."""
    row = part.rows[place]
    seeds = [dict(_shares_above(part, row.run, seed, results)) for seed in artifact.seeds]
    start = max(min(shares) for shares in seeds)  # below it a seed's share is all, beyond its end 0
    edges = sorted({edge for shares in seeds for edge in shares if edge >= start})
    above = {edge: sum(shares.get(edge, 0.0) for shares in seeds) / len(seeds) for edge in edges}
    edges = [edge for edge in edges if above[edge] <= _LARGEST_SHARE]
    axes.plot(
        edges, [above[edge] for edge in edges], color=look.colour, ls=look.dash, lw=1.6,
        label=printable(row.label),
    )  # fmt: skip
    for seed in artifact.seeds:
        top = metric(results.evaluation(part.suites[0], row.run, seed), f"{part.measures}_top1")
        if top is not None:
            axes.plot(
                [top], [0.03 + 0.035 * place], look.marker, color=look.colour, ms=5, mew=0,
                transform=axes.get_xaxis_transform(), clip_on=False,
            )  # fmt: skip


def _shares_above(
    part: SectionSlice, run: str, seed: int, results: Results
) -> list[tuple[float, float]]:
    """Lower edge of each bin, and the share of all values in it or above."""
    path = results.detail(part.suites[0], run, seed, _FILE)
    try:
        found = json.loads(path.read_text())[part.measures]
        counts = found["counts"]
        above = accumulate(reversed(counts))
        shares = [number / sum(counts) for number in above]
        return list(zip(found["edges"], reversed(shares), strict=True))
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise DataError(f"{path}: not a file of histograms ({error}); rerun the suite") from None
