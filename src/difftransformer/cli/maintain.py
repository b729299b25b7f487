"""Maintenance commands: send unsent tracking data, regenerate the schemas of the YAML files."""

from pathlib import Path

import typer

from difftransformer.cli.command_group import (
    MAINTAIN,
    ConfigDir,
    ResultsDir,
    TrackingUri,
    command,
    find_results,
)
from difftransformer.errors import UserError
from difftransformer.provenance.command_errors import report_errors


@command(
    *("sync-tracking", MAINTAIN, ""), "--results results --tracking https://mlflow.example.org"
)
def sync_tracking(
    results: ResultsDir = None, tracking: TrackingUri = "", config_dir: ConfigDir = Path("config")
) -> None:
    """Send unsent metrics and artifacts of jobs to MLflow, and end the runs of killed jobs."""
    from difftransformer.tracking.sync import sync_tracking

    with report_errors():
        root, uri = find_results(config_dir, results, tracking)
        if results is not None and not results.is_dir():
            raise UserError(f"{results}: no such folder; give --results a folder with builds")
        report = sync_tracking(root, uri)
    if report.reason:
        raise typer.Exit(1)


@command("write-schema", MAINTAIN, hidden=True)
def write_schema(config_dir: ConfigDir = Path("config")) -> None:
    """Regenerate config/schema/*.json from the typed settings."""
    from difftransformer.planning.schemas import write_schemas

    with report_errors():
        if not config_dir.is_dir():
            raise UserError(f"{config_dir}: no such folder; give the `config` of a checkout")
        for path in write_schemas(config_dir):
            typer.echo(path)
