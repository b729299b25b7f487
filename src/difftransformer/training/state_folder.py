"""What the state folder of a training, and its copy elsewhere, have by which name.

checkpoint-00000120/...                see `checkpoint`; its sums.json makes it whole
intermediate/step-00000060.safetensors intermediate checkpoint, published as it is
finished                               the training was through
"""

from collections.abc import Iterable
from pathlib import Path

from difftransformer.config.training import TrainingConfig
from difftransformer.errors import CheckpointError
from difftransformer.provenance.layout import INTERMEDIATE, TRAINING
from difftransformer.provenance.result import read_result

FINISHED, SUMS = "finished", "sums.json"
KEPT_CHECKPOINTS = 2
"""How many of the latest complete checkpoints a training keeps."""
CHECKPOINT = "checkpoint-"
"""How the name of a checkpoint begins, whole or not."""


def checkpoint_name(step: int) -> str:
    """Folder of the checkpoint after a step."""
    return f"{CHECKPOINT}{step:08d}"


def checkpoint_steps(names: Iterable[str]) -> list[int]:
    """Steps of the whole checkpoints among names, ascending."""
    found = (name.removeprefix(CHECKPOINT) for name in names if name.startswith(CHECKPOINT))
    return sorted(int(step) for step in found if step.isdecimal())


def intermediate_name(step: int) -> str:
    """File of the weights after a step, in the folder `KEPT`."""
    return f"step-{step:08d}.safetensors"


def intermediate_checkpoint(model: Path, step: int) -> Path:
    """File of the weights after a step, in the folder of a trained model.

    Raises:
        CheckpointError: Its training did not keep them, or they are gone.
    """
    path = model / INTERMEDIATE / intermediate_name(step)
    if not path.is_file():
        trained = read_result(model / TRAINING)
        training = TrainingConfig.model_validate(trained.settings["training"])
        raise CheckpointError(
            f"{path}: no such file: train run {trained.run} again with "
            f"{step / training.total_steps:g} among its save_checkpoints_at "
            f"{training.save_checkpoints_at}"
        )
    return path
