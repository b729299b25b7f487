"""The command `difftransformer`, which an installation without the extras has, too."""

import os
import sys

from difftransformer.machine import warm

_WARM = (
    "difftransformer.cli",
    "difftransformer.training.pretrain",
    "difftransformer.evaluation.evaluate",
)
"""What jobs need, to be imported once for all of them."""


def main() -> None:
    """Run the command line, or say which extra it lacks."""
    if warm.VARIABLE in os.environ:
        if sys.argv[1:2] == [warm.COMMAND]:
            warm.serve(_WARM)  # returns in each job, with the job's words
        else:
            warm.hand_over()
    try:
        from difftransformer.cli import main as run
    except ModuleNotFoundError as error:
        from difftransformer.extras import install_hint

        if (cure := install_hint(error)) is None:
            raise
        sys.exit(f"error: {cure}")
    run()


if __name__ == "__main__":
    main()
