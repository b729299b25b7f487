"""Subcommands that keep the tracking store."""

from pathlib import Path
from typing import Annotated

import typer

from difftransformer.cli.frame import Log, Output, Root, Uri, command, store
from difftransformer.cli.tools import Config
from difftransformer.provenance.job import reporting


@command
def initialise_tracking(
    output: Output, results: Root = Path("results"), tracking: Uri = "", log: Log = None
) -> None:
    """Create the tracking store and its experiments now; the first job that sends does it too."""
    from difftransformer.provenance.sync import initialise_tracking

    with reporting(log):
        initialise_tracking(store(tracking, results), output, results)


@command
def sync_tracking(
    results: Annotated[
        Path | None, typer.Option(help="Folder of everything that is built; else config.yaml's.")
    ] = None,
    tracking: Annotated[
        str, typer.Option(help="MLflow URI or 'off'; else the environment's or config.yaml's.")
    ] = "",
    close: Annotated[
        bool, typer.Option("--close-stale", help="End our runs that stayed RUNNING without a job.")
    ] = False,
    config: Config = Path("config"),
    log: Log = None,
) -> None:
    """Send everything that jobs tracked locally and could not send yet."""
    from difftransformer.config.overrides import load_project
    from difftransformer.provenance.sync import close_stale, sync_tracking
    from difftransformer.provenance.tracking import adopt

    with reporting(log):
        if (config / "config.yaml").is_file():
            project = load_project(config, {})
            results = results or Path(project.results)
            adopt(project.tracking.uri)
        root = results or Path("results")
        uri = store(tracking, root)
        report = sync_tracking(root, uri)
        if close:
            close_stale(root, uri)
    if report.unsent:
        raise typer.Exit(1)
