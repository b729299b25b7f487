"""The command line: one thin subcommand for every rule of the workflow, usable without it.

Each command reads its resolved slice, frames the work as a tracked job and calls the function of
its own name. Everything heavy is imported inside the command that needs it.
"""

from difftransformer.cli import everyday, ui, publishing, tools, training, evaluation, reports  # isort: skip - the order of the help
from difftransformer.cli.frame import app
from difftransformer.machine import search_rarely

__all__ = [
    "app", "evaluation", "everyday", "main", "publishing", "reports", "tools", "training", "ui",
]  # fmt: skip


def main() -> None:
    """Run the command line."""
    search_rarely()
    app()
