"""The one place that knows there may be more than one process."""

import os

from difftransformer.errors import ConfigError


def rank_and_world() -> tuple[int, int]:
    """Return the rank of the process and the number of processes, as torchrun sets them.

    Raises:
        ConfigError: started as one of several processes, which the trainer cannot join yet:
            each would silently train the whole model on its own.
    """
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world != 1:
        raise ConfigError(
            f"WORLD_SIZE is {world}, but training runs in one process: start it without torchrun"
        )
    return rank, world
