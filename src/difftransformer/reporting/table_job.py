"""The job of a table: result files in, one table in five formats out."""

from collections.abc import Iterable
from pathlib import Path

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.published import publish
from difftransformer.reporting.builders import load_builder
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.formats.latex import to_latex
from difftransformer.reporting.formats.markdown import to_markdown
from difftransformer.reporting.formats.tidy import to_csv
from difftransformer.reporting.formats.web import to_page

DATA = ".json"
SUFFIXES = (".csv", ".md", ".tex", ".html", DATA)
"""Endings of the files of a table; json is the table as data, which the report reads."""


def build_table(artifact: ArtifactSlice, results: Iterable[Path], output: Path) -> list[Path]:
    """Build a table; equal results give equal bytes.

    Args:
        artifact: The resolved table.
        results: Result files of its rows: trainings and evaluations, in any order.
        output: Path without an ending, or with that of any of its files.

    Returns:
        The files written: csv (tidy, full precision), md, tex and html (readable), json.

    Raises:
        UserError: a result is missing, of another scale, or lacks what a column shows.
        ConfigError: an unknown builder, or a claim about a column that is not there.
    """
    assert artifact.kind == "table", artifact.kind
    build = load_builder("table", artifact.builder)
    table: TableDocument = build(artifact, load_results(results, artifact.scale))
    texts = {
        ".csv": to_csv(table),
        ".md": to_markdown(table),
        ".tex": to_latex(table),
        ".html": to_page(table),
    }
    stem = without_suffix(output, SUFFIXES)
    *written, data = (stem.with_name(stem.name + suffix) for suffix in (*texts, DATA))
    for path, text in zip(written, texts.values(), strict=True):
        write_text(path, text)
    publish(data, table.model_dump(mode="json"), written)
    return [*written, data]


def without_suffix(path: Path, suffixes: Iterable[str]) -> Path:
    """Drop a known ending; a dot in the name that is none stays."""
    return path.with_suffix("") if path.suffix in suffixes else path
