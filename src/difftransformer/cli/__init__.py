"""The command line: commands for people, and `step`, which every rule of the workflow runs.

Everything heavy is imported inside the command that needs it.
"""

from difftransformer.cli import everyday, ui, publishing, tools, rules  # isort: skip - the order of the help
from difftransformer.cli.frame import app
from difftransformer.machine import relax_gc

__all__ = ["app", "everyday", "main", "publishing", "rules", "tools", "ui"]


def main() -> None:
    """Run the command line."""
    relax_gc()
    app()
