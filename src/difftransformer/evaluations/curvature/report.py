"""Tables and densities of the Hessian's spectrum, one section and panel per phase of training."""

import numpy as np
from pydantic import ValidationError

from difftransformer.config.evaluation import Options
from difftransformer.errors import DataError
from difftransformer.evaluations.curvature.settings import (
    FINAL,
    SPECTRA,
    TOP,
    ZERO,
    Spectra,
    Spectrum,
    phase_metric,
)
from difftransformer.reporting.charts import draw_lines, seed_points
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import INK, Figure, label_axes, legend_below
from difftransformer.reporting.panels import mark_x_values, row_legend, subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, metric_section

_COLUMNS = {
    "negative_top": (f"Negative of the top {TOP}, % ↓", 100.0),
    "largest": ("Largest eigenvalue", 1.0),
    "smallest": ("Smallest eigenvalue", 1.0),
    "ratio": ("|Smallest| / largest ↓", 1.0),
    "negative_curvature": ("Negative curvature, % ↓", 100.0),
    "negative_mass": ("Mass below zero, %", 100.0),
}
_DECIMALS = 2
_POINTS, _DECADES = 600, 8
_WIDTH = 0.015
"""Standard deviation of the Gaussian at each estimate, as a fraction of the axis."""


def section(context: SectionContext[Options]) -> list[Section]:
    """Return one report section of spectrum metrics per phase of training."""
    sections: list[Section] = []
    for phase in context.suite.all_phases:
        metrics = [
            MetricColumn(
                phase_metric(name, phase),
                header,
                {phase_metric(name, phase): factor},
                show_difference=name == "negative_top",
            )
            for name, (header, factor) in _COLUMNS.items()
        ]
        notes = [] if sections else _notes(context)
        section = metric_section(context, metrics, decimals=_DECIMALS, notes=notes)
        sections.append(section.model_copy(update={"title": _title(context, phase)}))
    return sections


def figure(context: SectionContext[Options]) -> Figure:
    """Draw the spectrum's density in one panel per phase, and below it both ends for every seed."""
    phases = context.suite.all_phases
    fig, (axs,) = subplot_grid(1, len(phases), (3.9 * len(phases), 3.9), sharex=True, sharey=True)
    grid, styles, highest = _grid(context), context.styles, 0.0
    for axes, phase in zip(axs, phases, strict=True):
        axes.axvline(0, color=INK, lw=0.8, ls=":")
        for index, row in enumerate(context.rows):
            seeds = [
                _spectra(context, row.run, seed).phases[phase] for seed in context.seeds_of(row)
            ]
            curve = density([spectrum for batches in seeds for spectrum in batches], grid)
            highest = max(highest, float(curve.max()))
            draw_lines(axes, seed_points(row.run, list(grid), [list(curve)]), styles, lw=1.4)
            ends = [
                require_metric(result, phase_metric(end, phase))
                for result in context.eval_results(row)
                for end in ("smallest", "largest")
            ]
            mark_x_values(axes, ends, index, styles[row.run])
        label_axes(axes, x="eigenvalue", y="density", title=_title(context, phase))
        axes.label_outer()
    axs[0].set_yscale("log")
    axs[0].set_ylim(highest * 10.0**-_DECADES, highest * 3)
    legend_below(fig, row_legend(context.rows, styles, marker_size=4))
    return fig


def density(batches: list[Spectrum], grid: np.ndarray) -> np.ndarray:
    """Return the mean density of spectra on an even grid of eigenvalues.

    Each estimated eigenvalue contributes a Gaussian with its weight.
    """
    nodes = np.concatenate([spectrum.nodes for spectrum in batches])
    weights = np.concatenate([spectrum.weights for spectrum in batches])
    width = _WIDTH * (grid[-1] - grid[0])
    gaussians = np.exp(-0.5 * np.square((grid[:, None] - nodes) / width))
    mean: np.ndarray = gaussians @ (weights / weights.sum()) / (width * np.sqrt(2 * np.pi))
    return mean


def _grid(context: SectionContext[Options]) -> np.ndarray:
    """Return an even grid from the smallest to the largest of all estimates, with a margin."""
    nodes = [
        node
        for row in context.rows
        for seed in context.seeds_of(row)
        for batches in _spectra(context, row.run, seed).phases.values()
        for spectrum in batches
        for node in spectrum.nodes
    ]
    margin = 4 * _WIDTH * (max(nodes) - min(nodes))
    return np.linspace(min(nodes) - margin, max(nodes) + margin, _POINTS)


def _spectra(context: SectionContext[Options], run: str, seed: int) -> Spectra:
    path = context.detail(run, seed, SPECTRA)
    try:
        return Spectra.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        location = ".".join(map(str, error.errors()[0]["loc"])) or "file"
        raise DataError(f"{path}: not a file of spectra ({location}): rerun the suite") from None


def _title(context: SectionContext[Options], phase: str) -> str:
    if phase == FINAL:
        return "Late: final weights"
    return f"{phase.capitalize()}: after {context.suite.phases[phase]:.0%} of training"


def _notes(context: SectionContext[Options]) -> list[str]:
    suite = context.suite
    error = max(
        require_metric(result, phase_metric("error", phase))
        for result in context.eval_results()
        for phase in suite.all_phases
    )
    return [
        f"On {suite.batches} batches of {suite.sequences} held-out windows of {suite.seq_len} "
        f"tokens, by {suite.steps} Lanczos steps. Negative of the top {TOP}: among the eigenvalues "
        f"of largest magnitude, whose errors are at most {error:.2g} of the largest. Mass below "
        f"zero: fraction of eigenvalues below minus {ZERO:.0%} of the largest.",
        context.training_note(),
    ]
