"""Report job: reads tables, figures, verdicts and results, and writes a small web site."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from difftransformer.config.resolved_artifacts import ReportConfig
from difftransformer.errors import UserError
from difftransformer.reporting.collect import Results, load_results
from difftransformer.reporting.provenance_summary import summarize_provenance
from difftransformer.reporting.section_context import PromptMaps, SectionContext, get_prompt_maps
from difftransformer.reporting.site.artifacts import SiteArtifact, read_artifacts, readable_results
from difftransformer.reporting.site.pages import Site, write_site
from difftransformer.reporting.verdict_job import read_verdicts

logger = logging.getLogger(__name__)


def build_report(
    report: ReportConfig,
    *,
    tables: Iterable[Path],
    figures: Iterable[Path],
    verdicts: Path,
    results: Iterable[Path],
    output: Path,
) -> None:
    """Write the report, a folder that works without a server, a network or other files.

    Equal inputs give equal bytes. Artifacts of an earlier build that were not requested this time
    are shown as they are.

    Args:
        report: The resolved report, with its artifacts in order.
        tables: Paths of ``{artifact}.json`` of every requested table, written by `build_table`.
        figures: Paths of ``{artifact}.svg`` of every requested figure, written by `build_figure`.
        verdicts: Path of the scale's verdicts.json.
        results: Paths of the result files behind the tables, each next to its history.
        output: Path of the first page, such as ``results/{scale}/report/index.html``; it is
            written last in its folder, followed by the checksums next to the folder.

    Raises:
        UserError: A table, a figure or a result is missing; the message names it and the command.
        DataError: A file is damaged.
    """
    document = read_verdicts(verdicts)
    artifacts = read_artifacts(report, tables, figures, document.verdicts)
    earlier = [path for artifact in report.earlier for path in readable_results(artifact.results)]
    loaded = load_results([*results, *earlier], report.scale)
    jobs = loaded.all_results()
    _require_results(artifacts, {result.job_id for result in jobs})
    provenance = summarize_provenance(jobs, loaded.paths)
    maps = _prompt_maps(report, artifacts, loaded)
    write_site(Site(report, artifacts, document, provenance, loaded, maps), output)


def _prompt_maps(
    report: ReportConfig, artifacts: Sequence[SiteArtifact], results: Results
) -> list[PromptMaps]:
    """Return the attention maps of all artifacts, without duplicates of a prompt and run.

    Missing maps of artifacts from an earlier build are skipped with a warning.
    """
    from_earlier_build = {a.id: a.from_earlier_build for a in artifacts}
    maps = dict[tuple[str, str], PromptMaps]()
    for artifact in (*report.tables, *report.figures):
        name = artifact.artifact
        for section in artifact.sections if name in from_earlier_build else ():
            try:
                section_maps = get_prompt_maps(SectionContext(artifact, section, results))
            except UserError as error:
                if not from_earlier_build[name]:
                    raise
                logger.warning(f"skipped: {error}")
            else:
                maps |= {(map_.prompt, map_.run): map_ for map_ in section_maps}
    return [*maps.values()]


def _require_results(artifacts: Iterable[SiteArtifact], job_ids: set[str]) -> None:
    """Check that the result of each job behind a cell was passed to the report."""
    for artifact in artifacts:
        if artifact.table is None or artifact.from_earlier_build:
            continue
        for job in (job for cell in artifact.table.cells() for job in cell.job_ids()):
            if job not in job_ids:
                raise UserError(
                    f"table '{artifact.id}' shows the job {job}, whose result was not passed or "
                    "has been rebuilt since; rebuild the table"
                )
