"""The job of a figure: result files in, one picture in two formats out."""

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
    """Draw a figure; equal inputs give equal bytes with one version of matplotlib.

    Args:
        artifact: The resolved figure.
        results: Result files of its rows: trainings and evaluations, in any order; histories and
            details lie beside them.
        output: Path without an ending, or with that of either file.

    Returns:
        The files written: svg and png.

    Raises:
        UserError: a result or a history is missing, of another scale, or lacks what is drawn.
    """
    assert artifact.kind == "figure", artifact.kind
    found = load_results(results, artifact.scale)
    with figure_style(artifact.artifact):
        stem = output.with_suffix("") if output.suffix in ENDINGS["figure"] else output
        written = save_figure(
            draw_figure(SectionContext(artifact, artifact.sections[0], found)), stem
        )
    write_checked(stem.with_name(stem.name + SUMS), {}, written)
    return written
