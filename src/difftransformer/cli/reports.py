"""Subcommands of the rules that make tables, figures and the report."""

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
    reporting_identity,
)
from difftransformer.provenance.job import reporting
from difftransformer.provenance.result import TRAINING


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
    with reporting(log):
        from difftransformer.config.artifact_slices import ArtifactSlice
        from difftransformer.reporting.table_job import build_table

        config, files = read(slice, ArtifactSlice), paths(inputs)
        identity = reporting_identity("build_table", config, files, code)
    with job(identity, config, results, tracking, log) as running:
        for path in build_table(config, files, output):
            running.tracker.log_artifact(path)


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
    with reporting(log):
        from difftransformer.config.artifact_slices import ArtifactSlice
        from difftransformer.reporting.figure_job import build_figure

        config, files = read(slice, ArtifactSlice), paths(inputs)
        identity = reporting_identity("build_figure", config, files, code)
        histories = [path.with_name("history.csv") for path in files if path.name == TRAINING]
    with job(identity, config, results, tracking, log) as running:
        for path in build_figure(config, files, histories, output):
            running.tracker.log_artifact(path)


@command
def build_report(
    slice: Slice,
    inputs: Inputs,
    tables: Annotated[str, typer.Option(help="Tables as JSON, separated by blanks.")],
    figures: Annotated[str, typer.Option(help="Pictures as SVG, separated by blanks.")],
    output: Output,
    log: Log = None,
) -> None:
    """Write the report: one self-contained page of tables, figures, verdicts and runs."""
    with reporting(log):
        from difftransformer.config.artifact_slices import ReportSlice
        from difftransformer.reporting.report_job import build_report

        config = read(slice, ReportSlice)
        build_report(
            config,
            tables=paths(tables),
            figures=paths(figures),
            results=paths(inputs),
            output=output,
        )
