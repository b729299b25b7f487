"""Jobs that make tables, figures, verdicts and the report."""

from importlib import import_module

from difftransformer.cli.step import Step
from difftransformer.provenance.checksums import digest
from difftransformer.provenance.command_errors import report_errors


def build(step: Step) -> None:
    """Run the job of the rule `table` or `figure`: make one table or figure from result files."""
    with report_errors(step.log):
        from difftransformer.config.resolved_artifacts import ResolvedArtifact

        module = import_module(f"difftransformer.reporting.{step.rule}_job")
        work = getattr(module, f"build_{step.rule}")
        config, page = step.read(ResolvedArtifact), step.output("page")
        upstream = _upstream(step)
        fields = {"suite": config.kind, "upstream": upstream}
        identity = step.identity(
            config.scale, config.artifact, config, " ".join(upstream), **fields
        )
    with step.job(identity, config) as running:
        for path in work(config, step.inputs("results"), page):
            running.tracker.log_artifact(path)


def _upstream(step: Step) -> list[str]:
    """Return the ids of the jobs that made the input results, sorted."""
    from difftransformer.provenance.result import read_result

    return sorted(read_result(path).job_id for path in step.inputs("results"))


def verdicts(step: Step) -> None:
    """Run the job of the rule `verdicts`: test the registered claims on result files.

    Writes verdicts.csv, verdicts.json and verdicts.md.
    """
    with report_errors(step.log):
        from difftransformer.config.resolved_artifacts import TestedClaims
        from difftransformer.reporting.verdict_job import build_verdicts

        config, output = step.read(TestedClaims), step.output("data")
        identity = step.identity(config.scale, "verdicts", config, " ".join(_upstream(step)))
    with step.job(identity, config, only={"scale", "alpha", "not_testable"}) as running:
        build_verdicts(config, results=step.inputs("results"), output=output)
        for suffix in (".csv", ".md", ".json"):
            running.tracker.log_artifact(output.with_suffix(suffix))


def report(step: Step) -> None:
    """Run the job of the rule `report`: write the report as a static site."""
    with report_errors(step.log):
        from difftransformer.config.resolved_artifacts import ReportConfig
        from difftransformer.reporting.report_job import build_report

        config, verdicts = step.read(ReportConfig), step.required("verdicts")
        page, sums = step.output("site") / "index.html", step.output("sums")
        pages = [*step.inputs("tables"), *step.inputs("figures"), verdicts]
        identity = step.identity(config.scale, "report", config, " ".join(map(digest, pages)))
    with step.job(identity, config, only={"scale", "seeds", "command"}) as running:
        build_report(
            config,
            tables=step.inputs("tables"),
            figures=step.inputs("figures"),
            verdicts=verdicts,
            results=step.inputs("results"),
            output=page,
        )
        running.tracker.log_artifact(sums)
