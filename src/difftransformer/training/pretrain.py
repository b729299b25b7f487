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
from difftransformer.training.run import Frame, Start, open_weights, train_run
from difftransformer.training.team import Team

logger = logging.getLogger(__name__)


def pretrain(slice: RunConfig, *, model: Path | None = None, **frame: Unpack[Frame]) -> None:
    """Train the model of ``slice``, or continue from the newest whole checkpoint; publish outputs.

    Args:
        slice: The resolved run; ``init_from`` names the run that it continues, if any.
        model: Folder of that run's finished training with the same seed.
        **frame: See `Frame`; the dataset has the parent's tokenizer.

    Raises:
        ConfigError: The run continues one that was not given, or the other way round, or their
            models differ in more than their positions.
        CheckpointError: ``model`` holds no finished training, that of another run or seed, or
            weights with another tokenizer.
        UserError: the data or the device does not fit, memory or disk is too small, training
            diverged; the line says which and what to do.
        Interrupted: stopped by SIGTERM or SIGINT after writing a checkpoint (exit status 75); the
            same call continues.
    """
    _train("pretrain", slice, model, frame)


def extend_context(slice: RunConfig, *, model: Path, **frame: Unpack[Frame]) -> None:
    """Continue a finished run on longer contexts; arguments and errors are those of `pretrain`.

    The model of ``slice`` starts from its parent's weights, with a larger ``max_positions`` and
    usually another ``rope_theta``.
    """
    _train("extend_context", slice, model, frame)


def _train(stage: str, slice: RunConfig, model: Path | None, frame: Frame) -> None:
    def start(dataset: PackedDataset, device: torch.device, team: Team) -> Start:
        require_memory(slice, device)
        transformer = _initial_model(slice, frame["seed"], model, device, team)
        transformer.activation_checkpointing = slice.training.activation_checkpointing
        method = Method(AdamW(transformer.named_parameters(), slice.training))
        return Start(
            transformer, method, transformer.backend, lambda: (team.plain(transformer), {})
        )

    train_run(stage, slice, model, start, frame)


def _initial_model(
    slice: RunConfig, seed: int, folder: Path | None, device: torch.device, team: Team
) -> Transformer:
    """Return the model that training starts from: drawn, or with the weights of the parent."""
    precision = slice.training.precision
    if precision == "fp32" and not slice.model.residual_in_fp32:
        logger.warning("model.residual_in_fp32 off has no effect: training.precision is fp32")
    backend = choose_backend(slice.training.backend, device.type, precision)

    def fill(transformer: Transformer, name: str, module: nn.Module) -> None:
        if folder is None:
            transformer.init_module(name, module, seed)

    empty = partial(Transformer, slice.model, backend)
    transformer = team.shared(empty, fill, device, precision)
    return transformer if folder is None else open_weights(slice, folder, transformer, team)
