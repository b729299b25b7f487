"""Figure job: reads result files and writes a figure as SVG and PNG."""

from collections.abc import Iterable
from pathlib import Path

from difftransformer.config.artifacts import ENDINGS
from difftransformer.config.resolved_artifacts import ResolvedArtifact
from difftransformer.provenance.checksums import write_checked
from difftransformer.provenance.layout import SUMS
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.drawing import figure_style, save_figure
from difftransformer.reporting.section_context import SectionContext, draw_figure


def build_figure(artifact: ResolvedArtifact, results: Iterable[Path], output: Path) -> list[Path]:
    """Draw a figure and write it as SVG and PNG.

    Equal inputs give equal bytes with the same version of matplotlib.

    Args:
        artifact: The resolved figure.
        results: Paths of the result files of the figure's rows, in any order, next to their
            histories and details.
        output: Path of either output file, or their path without a suffix.

    Returns:
        Paths of the svg and the png file.

    Raises:
        UserError: A result or history is missing, of another scale, or lacks a metric.
    """
    assert artifact.kind == "figure", artifact.kind
    loaded = load_results(results, artifact.scale)
    with figure_style(artifact.artifact):
        stem = output.with_suffix("") if output.suffix in ENDINGS["figure"] else output
        written = save_figure(
            draw_figure(SectionContext(artifact, artifact.sections[0], loaded)), stem
        )
    write_checked(stem.with_name(stem.name + SUMS), {}, written)
    return written
