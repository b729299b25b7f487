"""The job of the report: tables, figures and result files in, a small site out."""

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
    """Write the report; its folder needs no other file, no server and no network.

    Equal inputs give equal bytes. What an earlier call has built and this one was not asked for
    is shown as it lies there.

    Args:
        report: What to show, in order.
        tables: ``{artifact}.json`` of every table that was asked for, as `build_table` wrote them.
        figures: ``{artifact}.svg`` of every figure, as `build_figure` wrote them.
        verdicts: verdicts.json of the scale.
        results: Result files behind the tables, each with its history beside it.
        output: The first page, such as ``results/{scale}/report/index.html``; of the folder it is
            written last, and the digests of all of it beside the folder.

    Raises:
        UserError: A table, a figure or a result is missing; names it and the command.
        DataError: One of them is damaged.
    """
    answers = read_verdicts(verdicts)
    parts = read_artifacts(report, tables, figures, answers.verdicts)
    earlier = [path for one in report.earlier for path in readable_results(one.results)]
    found = load_results([*results, *earlier], report.scale)
    everything = found.everything()
    _require_origins(parts, {one.job_id for one in everything})
    origins = summarize_provenance(everything, found.paths)
    write_site(Site(report, parts, answers, origins, found, _maps(report, parts, found)), output)


def _maps(report: ReportConfig, parts: Sequence[SiteArtifact], found: Results) -> list[PromptMaps]:
    """Attention maps on prompts, each prompt and run once; of what is kept as far as they are."""
    kept = {part.id: part.kept for part in parts}
    maps = dict[tuple[str, str], PromptMaps]()
    for artifact in (*report.tables, *report.figures):
        for part in artifact.sections if artifact.artifact in kept else ():
            try:
                read = get_prompt_maps(SectionContext(artifact, part, found))
            except UserError as error:
                if not kept[artifact.artifact]:
                    raise
                logger.warning(f"left out: {error}")
            else:
                maps |= {(one.prompt, one.run): one for one in read}
    return [*maps.values()]


def _require_origins(parts: Iterable[SiteArtifact], known: set[str]) -> None:
    """No number without its origin: each job that a cell names must be among the results."""
    for part in parts:
        for cell in part.table.cells() if part.table is not None and not part.kept else ():
            for job in cell.job_ids():
                if job not in known:
                    raise UserError(
                        f"table '{part.id}' shows the job {job}, whose result was not given or has "
                        "been remade since: build the table again"
                    )
