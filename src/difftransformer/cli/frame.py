"""What the commands share: their group, options, the plan and the tracking store."""

import re
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
from difftransformer.config.yaml_files import parse_value
from difftransformer.errors import ConfigError, nearest
from difftransformer.tracking.address import OFF, adopt, check_uri, resolve_uri

if TYPE_CHECKING:
    from difftransformer.planning.plan import Plan

BUILDER = "reproduce"
"""Command that takes the name of a table or figure; the name alone stands for it."""

_PAPERS = re.compile(r"^papers:(.*?)(?=^\w|\Z)", re.MULTILINE | re.DOTALL)
_PAPER = re.compile(r"^  (\w+):$", re.MULTILINE)
"""Part of papers.yaml that has them, and an entry of it."""


class Commands(TyperGroup):
    """The group of all commands; a wrong call fails with a one-line error."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Resolve a command; the name of an artifact stands for the command that builds it."""
        if args and args[0] not in self.commands and args[0] in targets():
            args = [BUILDER, *args]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete the names of commands, and of what can be built."""
        completions = super().shell_complete(ctx, incomplete)
        return completions + [CompletionItem(name) for name in beginning_with(incomplete)]

    def main(self, *args: Any, standalone_mode: bool = True, **more: Any) -> Any:
        """Run a command; exit with its status, 2 for a wrong call."""
        given = args[0] if args else more.pop("args", None)
        words = sys.argv[1:] if given is None else list(given)
        status: Any
        try:
            status = super().main(words, standalone_mode=False, **more)
        except typer.Abort:
            status = 1
        except Exception as error:
            if not hasattr(error, "format_message"):  # of the kinds that typer raises by itself
                raise
            message = " ".join(error.format_message().split()).partition(" Did you mean")[0]
            if message := message.rstrip("."):  # empty for a bare call, which has printed the help
                typer.echo(f"error: {message}{_cure(error, words)}", err=True)
            status = 2
        if not standalone_mode:
            return status
        sys.exit(status if isinstance(status, int) else 0)


def _cure(error: Any, words: list[str]) -> str:
    """Return the rejected value of a call, or the nearest names, and the help to read."""
    if "No such command" in error.format_message():
        built = targets()
        where = "" if built else "; tables are built in a checkout of the project, from its folder"
        return nearest(words[0], {*app_names(), *built}) + where
    names = getattr(getattr(error, "param", None), "opts", [])
    values = [value for name, value in pairwise(words) if name in names]
    got = f", got {values[-1]!r}" if values else ""
    path = error.ctx.command_path if getattr(error, "ctx", None) else "difftransformer"
    return f"{got}; see `{path} --help`"


def targets(config: Path = Path("config")) -> list[str]:
    """Return the names in a configuration folder that can be built; none where there is none.

    Without reading any of it: Snakemake checks what it is asked for.
    """
    files = [path.stem for path in sorted((config / "artifacts").glob("*.yaml"))]
    parts = _PAPERS.findall(_text(config / "papers.yaml"))
    papers = sorted(name for part in parts for name in _PAPER.findall(part))
    return [*files, *papers, *GROUPS] if files else []


def beginning_with(incomplete: str) -> list[str]:
    """Return what can be built whose name begins so, for a shell that completes it."""
    return [name for name in targets() if name.startswith(incomplete)]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def app_names() -> list[str]:
    """Return the names of all commands."""
    return [str(registered.name) for registered in app.registered_commands]


app = typer.Typer(
    cls=Commands,
    help="Rebuild the tables and figures of the Differential Transformer work, step by step.",
    epilog="Exit status: 0 done, 1 a fault of this program, 2 a mistake that the last line names "
    "with its cure, 75 stopped and the same command goes on, 130 stopped from the keyboard. What "
    "builds ends as Snakemake does: 1 where a job failed.",
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
        help="Table, figure or ablation of config/artifacts.", autocompletion=beginning_with
    ),
]
FoundResults = Annotated[
    Path | None,
    typer.Option("--results", help="Folder of all results; default: `results` of config.yaml."),
]
FoundUri = Annotated[
    str,
    typer.Option(
        "--tracking", help="MLflow URI or 'off'; default: MLFLOW_TRACKING_URI, then config.yaml."
    ),
]
"""The two that `find_results` completes."""


def _seeds(text: str) -> Any:
    """Read a number or a list; the check of config.yaml validates it."""
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
        help="Number of seeds, or a list of them; default: those of the scale.",
    ),
]
Config = Annotated[Path, typer.Option("--config", help="Folder of the configuration.")]


BUILD = "Build and view"
INSPECT = "Inspect before a run"
EXPORT = "Export a model"
MAINTAIN = "Maintain"
STEPS = "For the workflow"


def command(panel: str, **more: Any) -> Callable[[F], F]:
    """Register a subcommand under the function's name, in a panel of the help."""

    def register(function: F) -> F:
        app.command(**{"name": function.__name__, "rich_help_panel": panel, **more})(function)
        return function

    return register


def load_plan(config: Path, scale: str | None, files: Sequence[Path] = (), **more: Any) -> "Plan":
    """Return the checked plan of a scale; None for a setting means that of config.yaml.

    Args:
        config: Folder of the configuration.
        scale: Name of the scale.
        files: YAML files with keys of config.yaml.
        **more: Further keys of config.yaml.
    """
    from difftransformer.planning.plan import Plan

    settings = {"scale": scale} | more
    return Plan.load(
        config, {key: value for key, value in settings.items() if value is not None}, files
    )


def find_results(config: Path, results: Path | None, tracking: str) -> tuple[Path, str]:
    """Return the results folder and the address of the tracking store, or "off".

    The command line takes precedence over the environment, and that over config.yaml.
    """
    if (config / "config.yaml").is_file():
        project, _ = load_project(config, {})
        results = results or Path(project.results)
        check_uri(project.tracking.uri, f"{config / 'config.yaml'}: tracking.uri")
        adopt(project.tracking.uri)
    root = results or Path("results")
    return root, resolve_uri(tracking or None, root) or OFF
