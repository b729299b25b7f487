"""What the stages that continue a trained run share: the parent they start from, and the start.

Everything but the weights starts afresh, the optimiser and the learning rate among them: the paper
does not say that it kept any.
"""

from pathlib import Path

import torch

from difftransformer.config.extension import require_same_model
from difftransformer.config.run import RunSlice
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError
from difftransformer.models.checkpoint import WEIGHTS, load_weights, read_config
from difftransformer.models.kernels import choose_backend
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.result import Result
from difftransformer.training.job import Frame, Job, run_job
from difftransformer.training.upstream import require_same_tokenizer, require_trained


def continue_run(stage: str, slice: RunSlice, model: Path, frame: Frame) -> None:
    """Train from the weights in ``model``, the folder of a finished training with the same seed.

    Raises:
        ConfigError: the models differ in more than their positions.
        CheckpointError: the folder holds no finished training, that of another run or seed, or
            weights with another tokenizer.
        UserError: one readable line; see `difftransformer.training.job.run_job`.
        Interrupted: stopped by SIGTERM or SIGINT after writing a checkpoint (exit status 75).
    """
    parent = open_parent(slice, model, PackedDataset.open(frame["dataset"]), frame["seed"])

    def build(device: torch.device) -> Transformer:
        backend = choose_backend(slice.training.backend, device.type, slice.training.precision)
        child = Transformer(slice.model, backend)
        require_same_model(child.config, read_config(model), f"run {slice.run}", parent.run)
        load_weights(child, model / WEIGHTS)
        return child.to(device)

    run_job(Job(stage, slice, frame, parent), build)


def open_parent(slice: RunSlice, model: Path, dataset: PackedDataset, seed: int) -> Result:
    """Return the result of the training that a run continues, once it is known to fit.

    Raises:
        ConfigError: The run continues no other.
        CheckpointError: No finished training of the parent with this seed and tokenizer.
    """
    if slice.init_from is None:
        raise ConfigError(
            f"run {slice.run} has no init_from, so there is nothing to continue: train it with "
            "`pretrain`, or name the run it continues in config/runs.yaml"
        )
    parent = require_trained(model, slice.init_from, seed)
    require_same_tokenizer(
        model, dataset, f"give the dataset of run {slice.run} the parent's as its base"
    )
    return parent
