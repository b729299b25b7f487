"""Entry point of the command `difftransformer`, which also works without the extras."""

import os
import sys

from difftransformer.machine import warm

_WARM = (
    "difftransformer.cli",
    "difftransformer.training.pretrain",
    "difftransformer.evaluation.evaluate",
)
"""Modules that the warm process imports once for all jobs forked from it."""


def main() -> None:
    """Run the command line program, or exit with the name of the missing extra."""
    if warm.VARIABLE in os.environ:
        if sys.argv[1:2] == [warm.COMMAND]:
            warm.serve(_WARM)  # returns in each job, with the arguments of the job
        else:
            warm.hand_over()
    try:
        from difftransformer.cli import main as run
    except ModuleNotFoundError as error:
        from difftransformer.extras import install_hint

        if (hint := install_hint(error)) is None:
            raise
        sys.exit(f"error: {hint}")
    run()


if __name__ == "__main__":
    main()
