"""Subcommands of the rules that make tables, figures and the report."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from difftransformer.cli.frame import (
    Code,
    Inputs,
    Log,
    Output,
    Root,
    Slice,
    Uri,
    command,
    job,
    paths,
    read,
)
from difftransformer.provenance.fingerprint import job_fingerprint
from difftransformer.provenance.job import JobIdentity
from difftransformer.provenance.reporting import reporting


@command
def build_table(
    slice: Slice,
    inputs: Inputs,
    output: Output,
    code: Code = "",
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Build a table from result files: csv, md, tex, html."""
    from difftransformer.reporting.table_job import build_table

    _build(build_table, slice, inputs, output, code, results, tracking, log)


@command
def build_figure(
    slice: Slice,
    inputs: Inputs,
    output: Output,
    code: Code = "",
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Draw a figure from result files and the histories beside them: svg, png."""
    from difftransformer.reporting.figure_job import build_figure

    _build(build_figure, slice, inputs, output, code, results, tracking, log)


def _build(
    build: Callable[..., Iterable[Path]],
    slice: Path,
    inputs: str,
    output: Path,
    code: str,
    results: Path,
    tracking: str,
    log: Path | None,
) -> None:
    """Identify a table or figure by its slice, its code and the results it shows; build it."""
    with reporting(log):
        from difftransformer.config.artifact_slices import ArtifactSlice
        from difftransformer.provenance.result import read_result

        config, files, rule = read(slice, ArtifactSlice), paths(inputs), build.__name__
        upstream = sorted(read_result(path).job_id for path in files)
        identity = JobIdentity(
            rule=rule,
            stage="tables",
            scale=config.scale,
            run=config.artifact,
            suite=config.kind,
            fingerprint=job_fingerprint(rule, config, code, " ".join(upstream), None),
            upstream=upstream,
        )
    with job(identity, config, results, tracking, log) as running:
        for path in build(config, files, output):
            running.tracker.log_artifact(path)


Tables = Annotated[str, typer.Option(help="Tables as JSON, separated by blanks.")]
Figures = Annotated[str, typer.Option(help="Pictures as SVG, separated by blanks.")]


@command
def build_page(
    slice: Slice, inputs: Inputs, tables: Tables, figures: Figures, output: Output, log: Log = None
) -> None:
    """Write the page of one artifact: its table, figure, verdicts and jobs."""
    from difftransformer.reporting.report_job import build_page

    _write(build_page, slice, inputs, tables, figures, output, log)


@command
def build_report(
    slice: Slice, inputs: Inputs, tables: Tables, figures: Figures, output: Output, log: Log = None
) -> None:
    """Write the report: one self-contained page of tables, figures, verdicts and runs."""
    from difftransformer.reporting.report_job import build_report

    _write(build_report, slice, inputs, tables, figures, output, log)


def _write(
    write: Callable[..., None],
    slice: Path,
    inputs: str,
    tables: str,
    figures: str,
    output: Path,
    log: Path | None,
) -> None:
    with reporting(log):
        from difftransformer.config.artifact_slices import ReportSlice

        write(
            read(slice, ReportSlice),
            tables=paths(tables),
            figures=paths(figures),
            results=paths(inputs),
            output=output,
        )
