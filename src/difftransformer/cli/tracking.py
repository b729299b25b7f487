"""Subcommands that keep the tracking store."""

from pathlib import Path
from typing import Annotated

import typer

from difftransformer.cli.frame import Log, Output, Root, Uri, command, store
from difftransformer.provenance.job import reporting


@command
def initialise_tracking(
    output: Output, results: Root = Path("results"), tracking: Uri = "", log: Log = None
) -> None:
    """Create the tracking store and its experiments before any job writes to it."""
    from difftransformer.provenance.sync import initialise_tracking

    with reporting(log):
        initialise_tracking(store(tracking, results), output, results)


@command
def sync_tracking(
    results: Root = Path("results"),
    tracking: Uri = "",
    close: Annotated[
        bool, typer.Option("--close-stale", help="End our runs that stayed RUNNING without a job.")
    ] = False,
    log: Log = None,
) -> None:
    """Send everything that jobs tracked locally and could not send yet."""
    from difftransformer.provenance.sync import close_stale, sync_tracking

    with reporting(log):
        report = sync_tracking(results, store(tracking, results))
        if close:
            close_stale(results, store(tracking, results))
    if report.unsent:
        raise typer.Exit(1)
