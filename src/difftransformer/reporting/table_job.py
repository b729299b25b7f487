"""The job of a table: result files in, one table in five formats out."""

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
from difftransformer.reporting.table_notes import corpus_note, interpretations_note, seeds_note

DATA = ".json"


def build_table(artifact: ResolvedArtifact, results: Iterable[Path], output: Path) -> list[Path]:
    """Build a table; equal results give equal bytes.

    Args:
        artifact: The resolved table.
        results: Result files of its rows: trainings and evaluations, in any order.
        output: Path without an ending, or with that of any of its files.

    Returns:
        The files written: csv (tidy, full precision), md, tex and html (readable), json.

    Raises:
        UserError: a result is missing, of another scale, or lacks what a column shows.
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
    """Make the table of an artifact.

    Raises:
        ConfigError: Two sections have different values at one row and column.
    """
    contexts = [SectionContext[Any](artifact, part, results) for part in artifact.sections]
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
            *interpretations_note(artifact),
        ],
    )


def without_suffix(path: Path, suffixes: Iterable[str]) -> Path:
    """Drop a known ending; a dot in the name that is none stays."""
    return path.with_suffix("") if path.suffix in suffixes else path


def _require_one_value(artifact: str, sections: list[Section]) -> None:
    """Whoever looks a number up by its row and column must not depend on the order of sections."""
    seen: dict[tuple[str, str], Cell] = {}
    for cell in (cell for section in sections for cell in section.cells):
        other = seen.setdefault((cell.row, cell.column), cell)
        if other.value != cell.value:
            raise ConfigError(
                f"config/artifacts/{artifact}.yaml: sections: two have a number of "
                f"'{cell.row}' in column '{cell.column}', {other.value} and {cell.value}: give one "
                "of them an artifact of its own"
            )


def _with_overrides(
    sections: list[Section], artifact: ResolvedArtifact, results: Results
) -> list[Section]:
    """Note in each cell the settings that `overrides` overrode, and drop the published value
    beside it.

    A row of timings is named by its run, then "/" and how it was timed.
    """
    changed = artifact.overrides
    if not changed:
        return sections
    jobs = {result.job_id: result.run for result in results.everything()}

    def noted(cell: Cell) -> Cell:
        runs = [cell.row, cell.row.partition("/")[0], *map(jobs.get, cell.job_ids())]
        found = dict.fromkeys(changed[run] for run in runs if run in changed)
        if not found:
            return cell
        lost = {"paper_value": None, "paper_text": None}
        return cell.model_copy(update={"overrides": "; ".join(found), **lost})

    return [
        section.model_copy(update={"cells": [noted(cell) for cell in section.cells]})
        for section in sections
    ]
