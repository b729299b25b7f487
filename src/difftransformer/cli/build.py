"""Commands that run Snakemake: `build` tables and figures, `rerun` an ablation."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from difftransformer.cli.command_group import (
    BUILD,
    Artifact,
    Scale,
    Seeds,
    command,
    complete_target,
    load_plan,
)
from difftransformer.config.project import parse_settings
from difftransformer.config.yaml_files import as_settings
from difftransformer.errors import UserError
from difftransformer.provenance.command_errors import report_errors

Cores = Annotated[int, typer.Option(min=1, help="Number of jobs at a time.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Print the jobs; run nothing.")]
_CORES = os.cpu_count() or 1
_SETTINGS = ArgumentParser(add_help=False, allow_abbrev=False)
_SETTINGS.add_argument("--config", "-C", nargs="*", action="extend", default=[])
_SETTINGS.add_argument("--configfile", "--configfiles", nargs="+", action="extend", default=[])
"""Parser that merges repeated options for settings, of which Snakemake would use only the last."""
_MIN_SIMILARITY = 0.85
"""Similarity above which an unknown option counts as a misspelled option of this command."""
_SIMILAR_OPTION = "--dryrun"
"""The only option of Snakemake that is more similar than that to an option of this command."""
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


@command(
    *("build", BUILD, "table6 --scale smoke", "figure5 --seeds 3 --config corpus=local_files"),
    context_settings=_PASS_ON,
)
def build(
    context: typer.Context,
    artifacts: Annotated[
        list[str] | None,
        typer.Argument(
            help="Tables, figures, ablations or groups such as `all`; default: `default_targets`.",
            autocompletion=complete_target,
        ),
    ] = None,
    scale: Scale = None,
    seeds: Seeds = None,
    cores: Cores = _CORES,
    dry_run: DryRun = False,
) -> None:
    """Build tables and figures with everything that they need, and the report.

    Runs Snakemake in the current folder, a checkout of the project, and passes other options on to
    Snakemake, such as --config KEY=VALUE. The word `build` can be left out before a name.
    """
    with report_errors():
        config, files, others = _split_settings(context, [*(artifacts or []), *context.args])
        settings = [*as_settings({"scale": scale, "seeds": seeds}), *config]
        words = ["--cores", str(cores), *(["--dry-run"] if dry_run else []), *others]
        _run_snakemake(words, settings, files)


@command(
    *("rerun", BUILD, "ablation_lambda_init", "table6 --scale smoke --dry-run"),
    context_settings=_PASS_ON,
)
def rerun(
    context: typer.Context,
    artifact: Artifact,
    scale: Scale = None,
    seeds: Seeds = None,
    cores: Cores = _CORES,
    dry_run: DryRun = False,
) -> None:
    """Train and evaluate the runs of an ablation again from scratch, and update its artifacts.

    Runs Snakemake in the current folder. It repeats the ablation's own trainings and rebuilds all
    existing artifacts that show these runs, by default with their current seeds. Other options
    are passed on to Snakemake.
    """
    with report_errors():
        from difftransformer.planning.built import built_seeds, built_users

        config, files, others = _split_settings(context, context.args)
        settings = {"scale": scale, "seeds": seeds} | parse_settings(config)
        plan = load_plan(Path("config"), files=files, **settings)
        if (
            "seeds" not in plan.call_settings
            and (earlier_seeds := built_seeds(plan, artifact)) is not None
        ):
            settings["seeds"] = earlier_seeds
            plan = load_plan(Path("config"), files=files, **settings)
        words = [*built_users(plan, artifact), "--cores", str(cores)]
        words += [*(["--dry-run"] if dry_run else []), *others]
        words += ["--forcerun", *plan.owned_trainings(artifact)]
        _run_snakemake(words, as_settings(settings), files)


def _split_settings(
    context: typer.Context, words: Sequence[str]
) -> tuple[list[str], list[Path], list[str]]:
    """Split arguments for Snakemake into settings, YAML files of settings, and other arguments."""
    parameters = context.command.params
    own = [name for option in parameters for name in option.opts if name.startswith("--")]
    _reject_misspelled(words, own)
    settings, others = _SETTINGS.parse_known_args(words)
    return settings.config, [*map(Path, settings.configfile)], others


def _reject_misspelled(words: Sequence[str], own: Sequence[str]) -> None:
    """Reject a misspelled option of this command, which Snakemake would answer with its usage."""
    for name in (word.partition("=")[0] for word in words):
        if name.startswith("--") and name not in own and name != _SIMILAR_OPTION:
            for match in get_close_matches(name, own, n=1, cutoff=_MIN_SIMILARITY):
                raise UserError(f"no such option {name}; did you mean {match}?")


def _run_snakemake(words: Sequence[str], settings: Sequence[str], files: Sequence[Path]) -> None:
    """Replace this process by Snakemake, which then handles signals, output and exit status."""
    words = [*words, *(["--configfile", *map(str, files)] if files else [])]
    words = [*words, *(["--config", *settings] if settings else [])]
    typer.echo(" ".join(["snakemake", *words]), err=True)
    os.execv(sys.executable, [sys.executable, "-m", "snakemake", *words])
