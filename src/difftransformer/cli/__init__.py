"""The command line: one thin subcommand for every rule of the workflow, usable without it.

Each command reads its resolved slice, frames the work as a tracked job and calls the function of
its own name. Everything heavy is imported inside the command that needs it.
"""

from difftransformer.cli import evaluation, reports, tools, training
from difftransformer.cli.frame import app

__all__ = ["app", "evaluation", "main", "reports", "tools", "training"]


def main() -> None:
    """Run the command line."""
    app()
