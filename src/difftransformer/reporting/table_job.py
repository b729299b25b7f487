"""Table job: reads result files and writes a table in five formats."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from difftransformer.config.artifacts import ENDINGS
from difftransformer.config.resolved_artifacts import ResolvedArtifact
from difftransformer.errors import ConfigError
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.checksums import write_checked
from difftransformer.reporting.collect import Results, load_results
from difftransformer.reporting.document import Cell, Published, Section, TableDocument
from difftransformer.reporting.formats.html import to_html
from difftransformer.reporting.formats.latex import to_latex
from difftransformer.reporting.formats.markdown import to_markdown
from difftransformer.reporting.formats.spreadsheet import to_csv
from difftransformer.reporting.section_context import SectionContext, build_sections
from difftransformer.reporting.table_notes import corpus_note, deviations_note, seeds_note

DATA = ".json"


def build_table(artifact: ResolvedArtifact, results: Iterable[Path], output: Path) -> list[Path]:
    """Build a table from results and write it in five formats; equal results give equal bytes.

    Args:
        artifact: The resolved table.
        results: Paths of the result files of the table's rows, in any order.
        output: Path of any of the output files, or their path without a suffix.

    Returns:
        Paths of the files: csv (tidy, full precision), md, tex and html (readable), json.

    Raises:
        UserError: A result is missing, of another scale, or lacks a metric.
    """
    assert artifact.kind == "table", artifact.kind
    table = make_table(artifact, load_results(results, artifact.scale))
    texts = {
        ".csv": to_csv(table.frame()),
        ".md": to_markdown(table),
        ".tex": to_latex(table),
        ".html": to_html(table),
    }
    stem = without_suffix(output, ENDINGS["table"])
    *written, data = (stem.with_name(stem.name + suffix) for suffix in (*texts, DATA))
    for path, text in zip(written, texts.values(), strict=True):
        write_text(path, text)
    write_checked(data, table.model_dump(mode="json"), written)
    return [*written, data]


def make_table(artifact: ResolvedArtifact, results: Results) -> TableDocument:
    """Return the table of an artifact, built from results.

    Raises:
        ConfigError: Two sections have different values at one row and column.
    """
    contexts = [SectionContext[Any](artifact, section, results) for section in artifact.sections]
    sections = [section for context in contexts for section in build_sections(context)]
    sections = _with_overrides(sections, artifact, results)
    _require_one_value(artifact.artifact, sections)
    paper, seeded = artifact.paper, any(context.options.seeded for context in contexts)
    return TableDocument(
        artifact=artifact.artifact,
        title=artifact.title,
        caption=artifact.caption,
        scale=artifact.scale,
        seeds=artifact.seeds,
        sections=sections,
        published=None
        if paper is None
        else Published(
            title=paper.title, source=paper.source, scale=paper.scale, notes=paper.notes
        ),
        notes=[
            *corpus_note(results.trainings.values()),
            *([seeds_note(artifact)] if seeded else []),
            *deviations_note(artifact),
        ],
    )


def without_suffix(path: Path, suffixes: Iterable[str]) -> Path:
    """Return a path without its suffix if the suffix is one of ``suffixes``, else unchanged."""
    return path.with_suffix("") if path.suffix in suffixes else path


def _require_one_value(artifact: str, sections: list[Section]) -> None:
    """Check that row and column identify a number, whatever section it is in."""
    by_key: dict[tuple[str, str], Cell] = {}
    for cell in (cell for section in sections for cell in section.cells):
        other = by_key.setdefault((cell.row, cell.column), cell)
        if other.value != cell.value:
            raise ConfigError(
                f"config/artifacts/{artifact}.yaml: sections: two sections have "
                f"different values of '{cell.row}' in column '{cell.column}', {other.value} and "
                f"{cell.value}; move one of them to another artifact"
            )


def _with_overrides(
    sections: list[Section], artifact: ResolvedArtifact, results: Results
) -> list[Section]:
    """Record overridden settings in each cell, and remove its published value.

    The name of a timing row is its run, "/" and how it was timed.
    """
    overrides = artifact.overrides
    if not overrides:
        return sections
    jobs = {result.job_id: result.run for result in results.all_results()}

    def with_overrides(cell: Cell) -> Cell:
        runs = [cell.row, cell.row.partition("/")[0], *map(jobs.get, cell.job_ids())]
        texts = dict.fromkeys(overrides[run] for run in runs if run in overrides)
        if not texts:
            return cell
        update = {"overrides": "; ".join(texts), "paper_value": None, "paper_text": None}
        return cell.model_copy(update=update)

    return [
        section.model_copy(update={"cells": [with_overrides(cell) for cell in section.cells]})
        for section in sections
    ]
