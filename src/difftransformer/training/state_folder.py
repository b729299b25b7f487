"""Names of the files in the state folder of a training, and in its mirror.

checkpoint-00000120/...                see `checkpoint`; complete with its sums.json
intermediate/step-00000060.safetensors         weights of an earlier step, published with the last
finished                               the training has finished
"""

from collections.abc import Iterable
from pathlib import Path

from difftransformer.config.training import TrainingConfig
from difftransformer.errors import CheckpointError
from difftransformer.provenance.layout import INTERMEDIATE, TRAINING
from difftransformer.provenance.result import read_result

FINISHED, SUMS = "finished", "sums.json"
KEPT_CHECKPOINTS = 2
"""Number of complete checkpoints that a training keeps."""
CHECKPOINT = "checkpoint-"
"""Prefix of checkpoint folders, also of incomplete ones."""


def checkpoint_name(step: int) -> str:
    """Return the name of the folder for the checkpoint after a step."""
    return f"{CHECKPOINT}{step:08d}"


def checkpoint_steps(names: Iterable[str]) -> list[int]:
    """Return the steps of the complete checkpoints in a list of file names, ascending."""
    steps = (name.removeprefix(CHECKPOINT) for name in names if name.startswith(CHECKPOINT))
    return sorted(int(step) for step in steps if step.isdecimal())


def intermediate_name(step: int) -> str:
    """Return the name of the file for the weights after a step, in the folder `INTERMEDIATE`."""
    return f"step-{step:08d}.safetensors"


def intermediate_checkpoint(model: Path, step: int) -> Path:
    """Return the path of the weights after a step, in the folder of a trained model.

    Raises:
        CheckpointError: The file does not exist.
    """
    path = model / INTERMEDIATE / intermediate_name(step)
    if not path.is_file():
        trained = read_result(model / TRAINING)
        training = TrainingConfig.model_validate(trained.settings["training"])
        raise CheckpointError(
            f"{path}: no such file: train run {trained.run} again with "
            f"{step / training.total_steps:g} in save_checkpoints_at {training.save_checkpoints_at}"
        )
    return path
