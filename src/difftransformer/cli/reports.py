"""Subcommands of the rules that make tables, figures and the report."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from difftransformer.cli.frame import (
    STEPS,
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
    people,
    read,
)
from difftransformer.provenance.fingerprint import job_fingerprint
from difftransformer.provenance.job import JobIdentity
from difftransformer.provenance.reporting import reporting

Tables = Annotated[str, typer.Option(help="Tables as JSON, separated by blanks.")]
Figures = Annotated[str, typer.Option(help="Pictures as SVG, separated by blanks.")]
Verdicts = Annotated[Path, typer.Option(help="verdicts.json, as the rule verdicts wrote it.")]


def _builder(kind: str, said: str) -> Callable[..., None]:
    """Register the subcommand that builds tables or figures, each by the function of its name.

    A table or figure is identified by its slice, its code and the results it shows.
    """

    @people(STEPS, name=kind, help=said)
    def build(
        slice: Slice,
        inputs: Inputs,
        output: Output,
        code: Code = "",
        results: Root = Path("results"),
        tracking: Uri = "",
        log: Log = None,
    ) -> None:
        with reporting(log):
            from difftransformer.config.artifact_slices import ArtifactSlice
            from difftransformer.provenance.result import read_result

            work = getattr(import_module(f"difftransformer.reporting.{kind}_job"), f"build_{kind}")
            config, files = read(slice, ArtifactSlice), paths(inputs)
            upstream = sorted(read_result(path).job_id for path in files)
            identity = JobIdentity(
                rule=kind,
                stage=kind,
                scale=config.scale,
                run=config.artifact,
                suite=config.kind,
                fingerprint=job_fingerprint(kind, config, code, " ".join(upstream), None),
                upstream=upstream,
            )
        with job(identity, config, results, tracking, log) as running:
            for path in work(config, files, output):
                running.tracker.log_artifact(path)

    return build


table = _builder("table", "Build a table from result files: csv, md, tex, html.")
figure = _builder(
    "figure", "Draw a figure from result files and the histories beside them: svg, png."
)


@command
def verdicts(slice: Slice, inputs: Inputs, output: Output, log: Log = None) -> None:
    """Test the registered claims on result files: verdicts.csv, json, md."""
    with reporting(log):
        from difftransformer.config.artifact_slices import TestedClaims
        from difftransformer.reporting.verdict_job import build_verdicts

        build_verdicts(read(slice, TestedClaims), results=paths(inputs), output=output)


@command
def report(
    slice: Slice,
    inputs: Inputs,
    tables: Tables,
    figures: Figures,
    verdicts: Verdicts,
    output: Output,
    log: Log = None,
) -> None:
    """Write the report: a small site that needs no server, and one page that has all of it."""
    with reporting(log):
        from difftransformer.config.artifact_slices import ReportSlice
        from difftransformer.reporting.report_job import build_report

        build_report(
            read(slice, ReportSlice),
            tables=paths(tables),
            figures=paths(figures),
            verdicts=verdicts,
            results=paths(inputs),
            output=output,
        )
