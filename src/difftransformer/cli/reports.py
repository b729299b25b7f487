"""Steps of the rules that make tables, figures and the report."""

from importlib import import_module

from difftransformer.cli.frame import Step
from difftransformer.provenance.fingerprint import job_fingerprint
from difftransformer.provenance.job import JobIdentity
from difftransformer.provenance.reporting import reporting


def build(step: Step) -> None:
    """Build a table, or draw a figure, from result files.

    It is identified by its settings, its code and the results it shows.
    """
    with reporting(step.log):
        from difftransformer.config.artifact_slices import ArtifactSlice
        from difftransformer.provenance.result import read_result

        module = import_module(f"difftransformer.reporting.{step.rule}_job")
        work = getattr(module, f"build_{step.rule}")
        config, results = step.read(ArtifactSlice), step.inputs("results")
        upstream = sorted(read_result(path).job_id for path in results)
        identity = JobIdentity(
            rule=step.rule,
            stage=step.rule,
            scale=config.scale,
            run=config.artifact,
            suite=config.kind,
            fingerprint=job_fingerprint(step.rule, config, step.code, " ".join(upstream), None),
            upstream=upstream,
        )
        page = step.output("page")
    with step.job(identity, config) as running:
        for path in work(config, results, page):
            running.tracker.log_artifact(path)


def verdicts(step: Step) -> None:
    """Test the registered claims on result files: verdicts.csv, json, md."""
    with reporting(step.log):
        from difftransformer.config.artifact_slices import TestedClaims
        from difftransformer.reporting.verdict_job import build_verdicts

        build_verdicts(
            step.read(TestedClaims), results=step.inputs("results"), output=step.output("data")
        )


def report(step: Step) -> None:
    """Write the report: a small site that needs no server, and one page that has all of it."""
    with reporting(step.log):
        from difftransformer.config.artifact_slices import ReportSlice
        from difftransformer.reporting.report_job import build_report

        build_report(
            step.read(ReportSlice),
            tables=step.inputs("tables"),
            figures=step.inputs("figures"),
            verdicts=step.required("verdicts"),
            results=step.inputs("results"),
            output=step.output("site") / "index.html",
        )
