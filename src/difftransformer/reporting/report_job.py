"""The job of the report: tables, figures and result files in, one self-contained page out."""

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from difftransformer.config.artifact_slices import ArtifactSlice, ReportSlice
from difftransformer.errors import DataError, UserError
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.published import SUMS, require_published
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.conditions import interpretations_note
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.formats.web import render
from difftransformer.reporting.origins import describe
from difftransformer.reporting.verdict_job import read_table, read_verdicts
from difftransformer.reporting.verdicts import Verdict


class Figure(NamedTuple):
    """A picture inside the page."""

    source: str
    alt: str
    caption: str


class Part(NamedTuple):
    """One artifact of the report."""

    id: str
    title: str
    description: str
    table: TableDocument | None
    figure: Figure | None
    verdicts: list[Verdict]


def build_page(report: ReportSlice, **files: Any) -> None:
    """Write the page of one artifact by itself; as `build_report`, without what papers print."""
    assert not report.contents
    build_report(report, **files)


def build_report(
    report: ReportSlice,
    *,
    tables: Iterable[Path],
    figures: Iterable[Path],
    verdicts: Path,
    results: Iterable[Path],
    output: Path,
) -> None:
    """Write the report; it needs no other file and no network. Equal inputs give equal bytes.

    Args:
        report: What to show, in order.
        tables: ``{artifact}.json`` of every table in ``report``, as `build_table` wrote them.
        figures: ``{artifact}.svg`` of every figure in ``report``, as `build_figure` wrote them.
        verdicts: verdicts.json of the scale.
        results: Result files behind the tables; each becomes an entry that the cells link to.
        output: The page, such as ``results/{scale}/report/index.html``.

    Raises:
        UserError: a table, a figure or a result is missing; names it and the command.
    """
    read = {path.stem: read_table(path) for path in tables}
    drawn = {path.stem: path for path in figures}
    judged = read_verdicts(verdicts)
    parts = [_part(name, report, read, drawn, judged.verdicts) for name in _names(report)]
    found = load_results(results, report.scale)
    everything = [*found.trainings.values(), *found.evaluations.values()]
    origins = describe(everything)
    _require_origins(parts, everything)
    text = render(
        "report.html.j2",
        report=report,
        parts=parts,
        judged=judged,
        shown={part.id for part in parts},
        origins=origins,
    )
    write_text(output, text)


def _names(report: ReportSlice) -> list[str]:
    """Artifacts in the order of the tables, then those that only have a figure."""
    return list(dict.fromkeys(one.artifact for one in (*report.tables, *report.figures)))


def _part(
    name: str,
    report: ReportSlice,
    read: dict[str, TableDocument],
    drawn: dict[str, Path],
    verdicts: Iterable[Verdict],
) -> Part:
    table = next((one for one in report.tables if one.artifact == name), None)
    figure = next((one for one in report.figures if one.artifact == name), None)
    about = table or figure
    assert about is not None
    for kind, wanted, have in (("table", table, name in read), ("figure", figure, name in drawn)):
        if wanted is not None and not have:
            raise UserError(
                f"the report shows the {kind} '{name}', which was not given: make it with "
                f"`snakemake {name} --config scale={report.scale}`"
            )
    return Part(
        id=name,
        title=about.title,
        description=about.description,
        table=read[name] if table is not None else None,
        figure=_figure(figure, drawn[name]) if figure is not None else None,
        verdicts=[one for one in verdicts if one.claim in about.claims],
    )


def _figure(figure: ArtifactSlice, path: Path) -> Figure:
    """Embed the picture as an image: its ids stay its own, and it brings no scripts to life."""
    try:
        require_published(path, path.with_suffix(SUMS))
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {error.strerror}; build the figure again"
        ) from None
    source = f"data:image/svg+xml;base64,{base64.b64encode(content).decode('ascii')}"
    return Figure(source, figure.alt, " ".join([figure.caption, *interpretations_note(figure)]))


def _require_origins(parts: list[Part], everything: list[Result]) -> None:
    """No number without its origin: each job that a cell names must be among the results."""
    known = {result.job_id for result in everything}
    for part in parts:
        for cell in part.table.cells() if part.table is not None else ():
            for job in cell.job_ids():
                if job not in known:
                    raise UserError(
                        f"table '{part.id}' shows the job {job}, whose result was not given or has "
                        "been remade since: build the table again"
                    )
