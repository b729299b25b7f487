"""The group of all commands, and the options and functions that several of them share."""

import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import CompletionItem, TyperGroup  # type: ignore[attr-defined]

from difftransformer.config.papers import GROUPS
from difftransformer.config.project import load_project
from difftransformer.config.yaml_files import parse_value, read_yaml
from difftransformer.errors import ConfigError, closest
from difftransformer.tracking.address import OFF, check_uri, resolve_uri, set_default_uri

if TYPE_CHECKING:
    from difftransformer.planning.plan import Plan

DEFAULT_COMMAND = "build"
"""The command that runs if only an artifact is named, as in `difftransformer table6`."""


class CommandGroup(TyperGroup):
    """Typer group of all commands; an invalid call fails with a one-line error."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command to run; an artifact's name alone selects `build` of that artifact."""
        if args and args[0] not in self.commands and args[0] in targets():
            args = [DEFAULT_COMMAND, *args]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return the commands and targets that begin with ``incomplete``."""
        completions = super().shell_complete(ctx, incomplete)
        return completions + [CompletionItem(name) for name in complete_target(incomplete)]

    def main(self, *args: Any, standalone_mode: bool = True, **more: Any) -> Any:
        """Run a command and exit with its status; an invalid call exits with status 2."""
        argv = args[0] if args else more.pop("args", None)
        words = sys.argv[1:] if argv is None else list(argv)
        status: Any
        try:
            status = super().main(words, standalone_mode=False, **more)
        except typer.Abort:
            status = 1
        except Exception as error:
            if not hasattr(error, "format_message"):  # not an error of the command line
                raise
            if message := _error_message(error, words):  # empty for a bare call: help was printed
                typer.echo(f"error: {message}", err=True)
            status = 2
        if not standalone_mode:
            return status
        sys.exit(status if isinstance(status, int) else 0)


def _error_message(error: Any, words: list[str]) -> str:
    """Return the error message of an invalid call in one line, with the rejected value or hints."""
    message = " ".join(error.format_message().split()).rstrip(".")
    if message.startswith("No such command"):  # also offer targets, which typer does not know
        message = message.partition(". Did you mean")[0].partition(" Did you mean")[0].rstrip(".")
        names = targets()
        if similar := closest(words[0], [*command_names(), *names]):
            return f"{message}; did you mean '{similar}'?"
        where = "an artifact (see `list`)" if names else "in a checkout of the project an artifact"
        return f"{message}; allowed: {', '.join(command_names())}, or {where}"
    if not message:
        return ""
    options = getattr(getattr(error, "param", None), "opts", [])
    values = [value for name, value in pairwise(words) if name in options]
    rejected = f", got {values[-1]!r}" if values else ""
    path = error.ctx.command_path if getattr(error, "ctx", None) else "difftransformer"
    return f"{message}{rejected}; see `{path} --help`"


def targets(config_dir: Path = Path("config")) -> list[str]:
    """Return the names of artifacts, papers and target groups; empty outside of a checkout.

    Only file names and the keys of papers.yaml are read; Snakemake validates the configuration.
    """
    artifacts = [path.stem for path in sorted((config_dir / "artifacts").glob("*.yaml"))]
    try:
        papers = read_yaml(config_dir / "papers.yaml").get("papers") or {}
    except ConfigError:
        papers = {}
    return [*artifacts, *sorted(papers), *GROUPS] if artifacts else []


def complete_target(incomplete: str) -> list[str]:
    """Return the target names that begin with ``incomplete``, for shell completion."""
    return [name for name in targets() if name.startswith(incomplete)]


def command_names() -> list[str]:
    """Return the names of the commands that ``--help`` lists."""
    return [str(item.name) for item in app.registered_commands if not item.hidden]


app = typer.Typer(
    cls=CommandGroup,
    help="Rebuild the tables and figures of the Differential Transformer papers.",
    epilog="Exit status: 0 success, 1 a bug or a failed job, 2 a mistake that the last line "
    "explains, 75 stopped (the same command resumes), 130 interrupted from the keyboard. `build` "
    "and `rerun` exit as Snakemake does.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"difftransformer {metadata.version('difftransformer')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    del version


F = TypeVar("F", bound=Callable[..., None])

Artifact = Annotated[
    str,
    typer.Argument(
        help="Table, figure or ablation of config/artifacts.", autocompletion=complete_target
    ),
]
ResultsDir = Annotated[
    Path | None,
    typer.Option("--results", help="Folder of all results; default: `results` of config.yaml."),
]
TrackingUri = Annotated[
    str,
    typer.Option(
        "--tracking", help="MLflow URI or 'off'; default: MLFLOW_TRACKING_URI, then config.yaml."
    ),
]


def _seeds(text: str) -> Any:
    """Parse a number of seeds or a list of seeds; the check of config.yaml validates the value."""
    try:
        return parse_value(text, "--seeds")
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


Scale = Annotated[
    str | None,
    typer.Option(help="Name of a file in config/scales; default: `scale` of config.yaml."),
]
Seeds = Annotated[
    Any,
    typer.Option(
        parser=_seeds,
        metavar="N|[A,B,...]",
        help="Number of seeds, or a list of them; default: the seeds of the scale.",
    ),
]
ConfigDir = Annotated[Path, typer.Option("--config-dir", help="Folder of the YAML configuration.")]


BUILD = "Build and view"
INSPECT = "Inspect before a run"
EXPORT = "Export a model"
MAINTAIN = "Maintain"


def command(name: str, panel: str, *examples: str, **options: Any) -> Callable[[F], F]:
    """Return a decorator that registers a function as a subcommand.

    Args:
        name: Name of the subcommand.
        panel: Heading under which ``--help`` lists the subcommand.
        *examples: Command line arguments that its help shows as examples.
        **options: Further keyword arguments of `typer.Typer.command`.
    """
    lines = [f"$ difftransformer {name} {arguments}".rstrip() for arguments in examples]
    epilog = "\n\n".join(["Examples:", *lines]) if examples else None
    return app.command(name, epilog=epilog, rich_help_panel=panel, **options)


def load_plan(
    config_dir: Path, scale: str | None, files: Sequence[Path] = (), **more: Any
) -> "Plan":
    """Return the validated plan of a scale.

    Args:
        config_dir: Folder of the YAML configuration.
        scale: Name of the scale; None: the value in config.yaml.
        files: YAML files with keys of config.yaml.
        **more: Values for further keys of config.yaml; None: the value in config.yaml.
    """
    from difftransformer.planning.plan import Plan

    settings = {"scale": scale} | more
    return Plan.load(
        config_dir, {key: value for key, value in settings.items() if value is not None}, files
    )


def find_results(config_dir: Path, results: Path | None, tracking: str) -> tuple[Path, str]:
    """Return the results folder, and the address of the MLflow tracking store or "off".

    The command line takes precedence over the environment, and the environment over config.yaml.

    Args:
        config_dir: Folder of the YAML configuration.
        results: Value of ``--results``; None if not given.
        tracking: Value of ``--tracking``; empty if not given.
    """
    if (config_dir / "config.yaml").is_file():
        project, _ = load_project(config_dir, {})
        results = results or Path(project.results)
        check_uri(project.tracking.uri, f"{config_dir / 'config.yaml'}: tracking.uri")
        set_default_uri(project.tracking.uri)
    root = results or Path("results")
    return root, resolve_uri(tracking or None, root) or OFF
