"""Everyday commands: build a table, rerun an ablation, open the report, print the verdicts."""

import os
import sys
import webbrowser
from argparse import ArgumentParser
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from difftransformer.cli.frame import (
    BUILD,
    Artifact,
    Config,
    Scale,
    Seeds,
    beginning_with,
    command,
    load_plan,
)
from difftransformer.config.project import load_project, settings_given
from difftransformer.config.yaml_files import as_settings
from difftransformer.errors import UserError
from difftransformer.provenance.layout import Layout
from difftransformer.provenance.reporting import reporting

Cores = Annotated[int, typer.Option(min=1, help="Jobs at one time.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Print what would run.")]
_CORES = os.cpu_count() or 1
_SETTINGS = ArgumentParser(add_help=False, allow_abbrev=False)
_SETTINGS.add_argument("--config", "-C", nargs="*", action="extend", default=[])
_SETTINGS.add_argument("--configfile", "--configfiles", nargs="+", action="extend", default=[])
"""Snakemake's options for settings; of a repeated one Snakemake would use only the last."""
_SNAKEMAKES, _ALIKE = "--dryrun", 0.85
"""Its one option that is more like one of ours than this."""


_PASSING_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


@command(BUILD, context_settings=_PASSING_ON)
def reproduce(
    call: typer.Context,
    artifacts: Annotated[
        list[str] | None,
        typer.Argument(
            help="Tables, figures, ablations or groups such as `all`; default: `default_targets`. "
            "Options that are not listed below go to Snakemake.",
            autocompletion=beginning_with,
        ),
    ] = None,
    scale: Scale = None,
    seeds: Seeds = None,
    cores: Cores = _CORES,
    dry_run: DryRun = False,
) -> None:
    """Build tables and figures with all that they need, and the report: `difftransformer table6`.

    Snakemake does it, in the current folder, which is a checkout of the project.
    """
    with reporting():
        given, files, others = _passed_on(call, [*(artifacts or []), *call.args])
        settings = [*as_settings({"scale": scale, "seeds": seeds}), *given]
        words = ["--cores", str(cores), *(["--dry-run"] if dry_run else []), *others]
        _snakemake(words, settings, files)


@command(BUILD, context_settings=_PASSING_ON)
def rerun(
    call: typer.Context,
    artifact: Artifact,
    scale: Scale = None,
    seeds: Seeds = None,
    cores: Cores = _CORES,
    dry_run: DryRun = False,
) -> None:
    """Train and evaluate the runs of an ablation again, from scratch, and what shows them.

    Snakemake does it, in the current folder: its own trainings are forced, and all built
    artifacts that show these runs are made again, with the seeds that they have where none are
    given. Options that are not below go to Snakemake.
    """
    with reporting():
        from difftransformer.planning.built import built_users, kept_seeds

        settings, files, others = _passed_on(call, call.args)
        asked = {"scale": scale, "seeds": seeds} | settings_given(settings)
        plan = load_plan(Path("config"), files=files, **asked)
        if "seeds" not in plan.given and (kept := kept_seeds(plan, artifact)) is not None:
            asked["seeds"] = kept
            plan = load_plan(Path("config"), files=files, **asked)
        words = [*built_users(plan, artifact), "--cores", str(cores)]
        words += [*(["--dry-run"] if dry_run else []), *others]
        words += ["--forcerun", *plan.owned_runs(artifact)]
        _snakemake(words, as_settings(asked), files)


@command(BUILD)
def show_verdicts(scale: Scale = None, config: Config = Path("config")) -> None:
    """Print a summary of the verdicts of a scale, and what to run next."""
    with reporting():
        plan = load_plan(config, scale)
        from difftransformer.reporting.verdict_job import read_verdicts

        path = Path(plan.jobs.layout.verdicts)
        for line in read_verdicts(path).summary:
            typer.echo(line)
        typer.echo(f"All verdicts: {path.with_suffix('.md')}")


@command(BUILD, name="open")
def open_report(
    artifact: Annotated[
        str | None,
        typer.Argument(
            help="Table or figure whose page to open; default: the first page of the report.",
            autocompletion=beginning_with,
        ),
    ] = None,
    scale: Scale = None,
    config: Config = Path("config"),
) -> None:
    """Open the report in a browser and print its path."""
    from difftransformer.errors import DataError

    with reporting():
        plan = load_plan(config, scale)
        if artifact is not None:
            plan.require(artifact, "open")
        page = Path(plan.jobs.layout.page(artifact or "index"))
        if not page.is_file():
            raise DataError(
                f"{page}: not built yet: difftransformer {artifact or 'reproduce'} --scale "
                f"{plan.catalogue.project.scale}"
            )
        typer.echo(page)
        if not webbrowser.open(page.resolve().as_uri()):
            typer.echo("no browser was found on this machine; open the file above in one", err=True)


@command(BUILD, hidden=True)
def results_folder(scale: Scale = None, config: Config = Path("config")) -> None:
    """Print the folder of the results of a scale, for the Makefile."""
    with reporting():
        project, _ = load_project(config, {} if scale is None else {"scale": scale})
        typer.echo(Layout(project.results, project.scale).home)


def _passed_on(
    call: typer.Context, words: Sequence[str]
) -> tuple[list[str], list[Path], list[str]]:
    """Split the arguments for Snakemake into settings, files of settings and the rest."""
    own = [name for one in call.command.params for name in one.opts if name.startswith("--")]
    _refuse_misspelled(words, own)
    given, others = _SETTINGS.parse_known_args(words)
    return given.config, [*map(Path, given.configfile)], others


def _refuse_misspelled(words: Sequence[str], own: Sequence[str]) -> None:
    """Reject a misspelled option of ours; Snakemake would answer with its whole usage."""
    for name in (word.partition("=")[0] for word in words):
        known = name in own or name == _SNAKEMAKES
        if name.startswith("--") and not known:
            for found in get_close_matches(name, own, n=1, cutoff=_ALIKE):
                raise UserError(f"no such option {name}; did you mean {found}?")


def _snakemake(words: Sequence[str], settings: Sequence[str], files: Sequence[Path]) -> None:
    """Replace this process by Snakemake, so that signals, output and exit status are its own."""
    words = [*words, *(["--configfile", *map(str, files)] if files else [])]
    words = [*words, *(["--config", *settings] if settings else [])]
    typer.echo(" ".join(["snakemake", *words]), err=True)
    os.execv(sys.executable, [sys.executable, "-m", "snakemake", *words])
