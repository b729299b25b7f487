"""The command line: commands for users, and `step`, which every rule of the workflow calls.

Everything heavy is imported inside the command that needs it.
"""

from difftransformer.cli import build, view, ui, export, plan, maintain, rules  # isort: skip - the order of the help
from difftransformer.cli.command_group import app
from difftransformer.machine import relax_gc

__all__ = ["app", "build", "export", "main", "maintain", "plan", "rules", "ui", "view"]


def main() -> None:
    """Run the command line program `difftransformer`."""
    relax_gc()
    app()
