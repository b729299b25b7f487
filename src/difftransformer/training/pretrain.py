"""Pre-training: a model on a packed dataset, from scratch or from the weights of a finished run.

The paper continues training on longer contexts (section 3.3: 1.5B tokens at 64K, theta 640000;
see `extend_context`) and on other text (appendix C: mathematics, then distilled reasoning). Only
the weights are carried over; optimizer state and learning rate start anew, since the paper does not
say otherwise.
"""

import logging
from functools import partial
from pathlib import Path
from typing import Unpack

import torch
from torch import nn

from difftransformer.config.run import RunConfig
from difftransformer.data.packed import PackedDataset
from difftransformer.models.kernels import choose_backend
from difftransformer.models.transformer import Transformer
from difftransformer.training.memory import require_memory
from difftransformer.training.method import Method
from difftransformer.training.optimizer import AdamW
from difftransformer.training.process_group import ProcessGroup
from difftransformer.training.run import JobArguments, TrainSetup, open_weights, train_run

logger = logging.getLogger(__name__)


def pretrain(
    run_config: RunConfig, *, model: Path | None = None, **job: Unpack[JobArguments]
) -> None:
    """Pre-train the model of a run, or resume from the latest checkpoint; write the outputs.

    Args:
        run_config: The resolved config; ``init_from`` names the parent run to continue, if any.
        model: Folder of the parent's finished training with the same seed.
        **job: `run.JobArguments`; the dataset must have the parent's tokenizer.

    Raises:
        ConfigError: ``init_from`` without ``model``, or the reverse; or the two models differ in
            more than their positions.
        CheckpointError: ``model`` has no finished training, or one of another run, seed or
            tokenizer.
        UserError: The data or the device does not fit, memory or disk is too small, or training
            diverged; the message says how to fix it.
        Interrupted: Stopped by a signal after writing a checkpoint (exit status 75); the same call
            resumes.
    """
    _train("pretrain", run_config, model, job)


def extend_context(run_config: RunConfig, *, model: Path, **job: Unpack[JobArguments]) -> None:
    """Continue a finished run on longer contexts; arguments and errors are those of `pretrain`.

    The model starts from its parent's weights, with a larger ``max_positions`` and usually another
    ``rope_theta``.
    """
    _train("extend_context", run_config, model, job)


def _train(stage: str, run_config: RunConfig, model: Path | None, job: JobArguments) -> None:
    def make_setup(dataset: PackedDataset, device: torch.device, group: ProcessGroup) -> TrainSetup:
        require_memory(run_config, device)
        transformer = _initial_model(run_config, job["seed"], model, device, group)
        transformer.activation_checkpointing = run_config.training.activation_checkpointing
        method = Method(AdamW(transformer.named_parameters(), run_config.training))
        return TrainSetup(
            transformer,
            method,
            transformer.backend,
            lambda: (group.gather_full_model(transformer), {}),
        )

    train_run(stage, run_config, model, make_setup, job)


def _initial_model(
    run_config: RunConfig, seed: int, folder: Path | None, device: torch.device, group: ProcessGroup
) -> Transformer:
    """Return the initial model: random weights, or those of the parent."""
    precision = run_config.training.precision
    if precision == "fp32" and not run_config.model.residual_in_fp32:
        logger.warning("model.residual_in_fp32 off has no effect: training.precision is fp32")
    backend = choose_backend(run_config.training.backend, device.type, precision)

    def init_module(transformer: Transformer, name: str, module: nn.Module) -> None:
        if folder is None:
            transformer.init_module(name, module, seed)

    make_model = partial(Transformer, run_config.model, backend)
    transformer = group.shard_model(make_model, init_module, device, precision)
    return transformer if folder is None else open_weights(run_config, folder, transformer, group)
