"""The curvature of the loss as columns, a section for each phase, and as densities by phase."""

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
    "negative_top": ("Negative of the top, % ↓", 100.0),
    "largest": ("Largest", 1.0),
    "smallest": ("Smallest", 1.0),
    "ratio": ("Smallest to largest ↓", 1.0),
    "negative_curvature": ("Negative curvature, % ↓", 100.0),
    "negative_mass": ("Mass below zero, %", 100.0),
}
_DECIMALS = 2
_POINTS, _DECADES = 600, 8
_WIDTH = 0.015
"""Of the bell in the place of an estimate, as a share of the axis."""


def section(context: SectionContext[Options]) -> list[Section]:
    """Make a section for each phase."""
    made: list[Section] = []
    for phase in context.suite.all_phases:
        metrics = [
            MetricColumn(
                phase_metric(name, phase),
                header,
                {phase_metric(name, phase): factor},
                compared=name == "negative_top",
            )
            for name, (header, factor) in _COLUMNS.items()
        ]
        notes = [] if made else _notes(context)
        one = metric_section(context, metrics, decimals=_DECIMALS, notes=notes)
        made.append(one.model_copy(update={"title": _title(context, phase)}))
    return made


def figure(context: SectionContext[Options]) -> Figure:
    """Draw a panel for each phase: densities, and the ends of every seed below them."""
    phases = context.suite.all_phases
    figure, (places,) = subplot_grid(
        1, len(phases), (3.9 * len(phases), 3.9), sharex=True, sharey=True
    )
    grid, look, highest = _grid(context), context.styles, 0.0
    for axes, phase in zip(places, phases, strict=True):
        axes.axvline(0, color=INK, lw=0.8, ls=":")
        for place, row in enumerate(context.rows):
            seeds = [
                _spectra(context, row.run, seed).phases[phase] for seed in context.seeds_of(row)
            ]
            found = density([one for batches in seeds for one in batches], grid)
            highest = max(highest, float(found.max()))
            draw_lines(axes, seed_points(row.run, list(grid), [list(found)]), look, lw=1.4)
            ends = [
                require_metric(result, phase_metric(end, phase))
                for result in context.eval_results(row)
                for end in ("smallest", "largest")
            ]
            mark_x_values(axes, ends, place, look[row.run])
        label_axes(axes, x="eigenvalue", y="density", title=_title(context, phase))
        axes.label_outer()
    places[0].set_yscale("log")
    places[0].set_ylim(highest * 10.0**-_DECADES, highest * 3)
    legend_below(figure, row_legend(context.rows, look, mark=4))
    return figure


def density(batches: list[Spectrum], grid: np.ndarray) -> np.ndarray:
    """Mean density of spectra on an even grid, with a bell in the place of each estimate."""
    nodes = np.concatenate([probe for one in batches for probe in one.nodes])
    weights = np.concatenate([probe for one in batches for probe in one.weights])
    width = _WIDTH * (grid[-1] - grid[0])
    bells = np.exp(-0.5 * np.square((grid[:, None] - nodes) / width))
    found: np.ndarray = bells @ (weights / weights.sum()) / (width * np.sqrt(2 * np.pi))
    return found


def _grid(context: SectionContext[Options]) -> np.ndarray:
    """Return eigenvalues from the smallest to the largest of all, with room beside them."""
    nodes = [
        node
        for row in context.rows
        for seed in context.seeds_of(row)
        for batches in _spectra(context, row.run, seed).phases.values()
        for one in batches
        for probe in one.nodes
        for node in probe
    ]
    room = 4 * _WIDTH * (max(nodes) - min(nodes))
    return np.linspace(min(nodes) - room, max(nodes) + room, _POINTS)


def _spectra(context: SectionContext[Options], run: str, seed: int) -> Spectra:
    path = context.detail(run, seed, SPECTRA)
    try:
        return Spectra.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "file"
        raise DataError(f"{path}: not a file of spectra ({where}); rerun the suite") from None


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
        f"tokens. Negative of the top: among the {TOP} of largest magnitude, by "
        f"{suite.steps} Lanczos steps; their errors are at most {error:.2g} of the largest. Mass "
        f"below zero: the share of eigenvalues below minus {ZERO:.0%} of the largest.",
        context.training_note(),
    ]
