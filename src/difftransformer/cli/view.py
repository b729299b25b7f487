"""Commands that show existing results: `list`, `verdicts`, `open`, `compare` and `verify`."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from difftransformer.cli.command_group import (
    BUILD,
    ConfigDir,
    Scale,
    command,
    complete_target,
    load_plan,
)
from difftransformer.config.project import load_project
from difftransformer.provenance.command_errors import report_errors
from difftransformer.provenance.layout import Layout


@command("list", BUILD, "--scale smoke", "--runs")
def list_artifacts(
    runs: Annotated[bool, typer.Option("--runs", help="List runs instead.")] = False,
    scale: Scale = None,
    config_dir: ConfigDir = Path("config"),
) -> None:
    """List the tables and figures of a scale with the seeds that are built, or its runs."""
    with report_errors():
        plan = load_plan(config_dir, scale)
        if runs:
            lines = {name: (model.label, "") for name, model in plan.resolver.runs.items()}
        else:
            from difftransformer.planning.built import built, seeds_of

            artifacts, states = plan.artifacts.available, dict.fromkeys(built(plan), "built")
            for name, seeds in seeds_of(plan, states).items():
                states[name] = f"{len(seeds)} seed{'s' * (len(seeds) > 1)}"
            lines = {name: (item.title, states.get(name, "-")) for name, item in artifacts.items()}
        widths = [max(map(len, lines)), max(len(state) for _, state in lines.values())]
        for name, (title, state) in lines.items():
            typer.echo(f"{name:{widths[0]}}  {state:{widths[1]}}  {title}")


@command("verdicts", BUILD, "", "--scale small")
def verdicts(scale: Scale = None, config_dir: ConfigDir = Path("config")) -> None:
    """Print a summary of the verdicts of a scale and suggest what to run next."""
    with report_errors():
        plan = load_plan(config_dir, scale)
        from difftransformer.reporting.verdict_job import read_verdicts

        path = Path(plan.jobs.layout.verdicts)
        for line in read_verdicts(path).summary:
            typer.echo(line)
        typer.echo(f"All verdicts: {path.with_suffix('.md')}")


@command("open", BUILD, "", "table3 --scale smoke")
def open_report(
    artifact: Annotated[
        str | None,
        typer.Argument(
            help="Table or figure whose page to open; default: the first page of the report.",
            autocompletion=complete_target,
        ),
    ] = None,
    scale: Scale = None,
    config_dir: ConfigDir = Path("config"),
) -> None:
    """Open the report in a browser and print its path."""
    from difftransformer.errors import DataError

    with report_errors():
        plan = load_plan(config_dir, scale)
        if artifact is not None:
            plan.require(artifact, "open")
        page = Path(plan.jobs.layout.page(artifact or "index"))
        if not page.is_file():
            raise DataError(
                f"{page}: not built yet: difftransformer {artifact or 'build'} --scale "
                f"{plan.resolver.project.scale}"
            )
        typer.echo(page)
        if not webbrowser.open(page.resolve().as_uri()):
            typer.echo(
                "no browser found on this machine: open the file above in a browser elsewhere",
                err=True,
            )


@command("results-folder", BUILD, hidden=True)
def results_folder(scale: Scale = None, config_dir: ConfigDir = Path("config")) -> None:
    """Print the results folder of a scale, for the Makefile."""
    with report_errors():
        project, _ = load_project(config_dir, {} if scale is None else {"scale": scale})
        typer.echo(Layout(project.results, project.scale).home)


@command(
    *("compare", BUILD, "results/tiny elsewhere/results/tiny"),
    "results/tiny results/small --output scales.html",
)
def compare(
    first: Annotated[
        Path, typer.Argument(metavar="A", help="Folder of a scale, such as results/tiny.")
    ],
    second: Annotated[
        Path, typer.Argument(metavar="B", help="Such a folder of another machine, commit or scale.")
    ],
    output: Annotated[Path, typer.Option(help="Page to write.")] = Path("comparison.html"),
) -> None:
    """Compare the tables of two builds on a page that marks differences beyond noise."""
    with report_errors():
        from difftransformer.reporting.comparison import write_comparison

        comparison = write_comparison(first, second, output)
        typer.echo(f"{output}: {comparison.summary}")


@command(
    *("verify", BUILD, "results/tiny results-verify/tiny"), "results/smoke elsewhere/results/smoke"
)
def verify(
    built: Annotated[Path, typer.Argument(help="Folder of a scale, such as results/smoke.")],
    rebuilt: Annotated[Path, typer.Argument(help="The same folder of a second build.")],
) -> None:
    """Compare the checksums of two builds; exit with status 1 if any file differs."""
    from difftransformer.provenance.checksums import compare_builds

    with report_errors():
        files = compare_builds(built, rebuilt)
    for file in files:
        state = "same" if file.same else "MISSING" if file.built is None else "DIFFERENT"
        typer.echo(f"{state:9} {file.rebuilt[:16]} {file.name}")
    different = sum(not file.same for file in files)
    typer.echo(f"{len(files) - different} of {len(files)} files are the same")
    if different:
        raise typer.Exit(1)
