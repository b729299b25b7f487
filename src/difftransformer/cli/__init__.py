"""The command line: one thin subcommand for every rule of the workflow, usable without it.

Each command reads its resolved slice, frames the work as a tracked job and calls the function of
its own name. Everything heavy is imported inside the command that needs it.
"""

import gc

from difftransformer.cli import everyday, ui, publishing, tools, training, evaluation, reports  # isort: skip - the order of the help
from difftransformer.cli.frame import app

__all__ = [
    "app", "evaluation", "everyday", "main", "publishing", "reports", "tools", "training", "ui",
]  # fmt: skip

_ALLOCATIONS = 50_000
"""Between two searches for cycles. Importing transformers makes a million objects that stay; to
search them at Python's own pace, every 700, costs a short job a seventh of its time."""


def main() -> None:
    """Run the command line."""
    gc.set_threshold(_ALLOCATIONS)
    app()
