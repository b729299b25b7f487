"""What the state folder of a training, and its copy elsewhere, have by which name.

checkpoint-00000120/...                see `checkpoint`; its sums.json makes it whole
kept/step-00000060.safetensors         weights of a step before the last, published as they are
finished                               the training was through
"""

from collections.abc import Iterable

FINISHED, SUMS = "finished", "sums.json"
KEPT = "kept"
"""Folder of kept weights, below the outputs, too."""
CHECKPOINT = "checkpoint-"
"""How the name of a checkpoint begins, whole or not."""


def checkpoint_name(step: int) -> str:
    """Folder of the checkpoint after a step."""
    return f"{CHECKPOINT}{step:08d}"


def checkpoint_steps(names: Iterable[str]) -> list[int]:
    """Steps of the whole checkpoints among names, ascending."""
    found = (name.removeprefix(CHECKPOINT) for name in names if name.startswith(CHECKPOINT))
    return sorted(int(step) for step in found if step.isdecimal())


def kept_name(step: int) -> str:
    """File of the weights after a step, in the folder `KEPT`."""
    return f"step-{step:08d}.safetensors"
