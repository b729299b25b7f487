"""The command `difftransformer`, which an installation without the extras has, too."""

import sys

from difftransformer.extras import how_to_get


def main() -> None:
    """Run the command line, or say which extra it lacks."""
    try:
        from difftransformer.cli import main as run
    except ModuleNotFoundError as error:
        if (cure := how_to_get(error)) is None:
            raise
        sys.exit(f"error: {cure}")
    run()


if __name__ == "__main__":
    main()
