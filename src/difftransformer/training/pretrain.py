"""Pre-training from scratch: a freshly initialised model on a packed dataset."""

from typing import Unpack

import torch

from difftransformer.config.run import RunSlice
from difftransformer.errors import ConfigError
from difftransformer.models.kernels import choose_backend
from difftransformer.models.transformer import Transformer
from difftransformer.training.interrupt import Interrupted
from difftransformer.training.job import Frame, Job, run_job

__all__ = ["Interrupted", "pretrain"]


def pretrain(slice: RunSlice, **frame: Unpack[Frame]) -> None:
    """Train the model of ``slice`` from scratch, or continue where an earlier call was stopped.

    Args:
        slice: The resolved run.
        **frame: See `difftransformer.training.job.Frame`.

    Raises:
        UserError: one readable line; see `difftransformer.training.job.run_job`.
        Interrupted: stopped by SIGTERM or SIGINT after writing a checkpoint (exit status 75).
    """
    if slice.init_from is not None:
        raise ConfigError(
            f"run {slice.run} continues {slice.init_from}: train it with `extend_context` or "
            "`continue_training`"
        )

    def build(device: torch.device) -> Transformer:
        backend = choose_backend(slice.training.backend, device.type, slice.training.precision)
        return Transformer.build(slice.model, backend, frame["seed"]).to(device)

    run_job(Job("pretrain", slice, frame), build)
