"""Pre-training: a model on a packed dataset, from scratch or from the weights of a finished run.

Differential Transformer goes on with longer positions (section 3.3: 1.5B tokens at 64K, theta
640000) and with other text (appendix C: mathematics, then distilled reasoning). Everything but the
weights starts afresh then, the optimiser and the learning rate among them: the paper does not say
that it kept any.
"""

from pathlib import Path
from typing import Unpack

import torch

from difftransformer.config.extension import require_same_model
from difftransformer.config.run import RunSlice
from difftransformer.data.packed import PackedDataset
from difftransformer.models.checkpoint import WEIGHTS, load_weights, read_config
from difftransformer.models.kernels import choose_backend
from difftransformer.models.transformer import Transformer
from difftransformer.training.job import Frame, Job, run_job
from difftransformer.training.upstream import open_parent


def pretrain(slice: RunSlice, *, model: Path | None = None, **frame: Unpack[Frame]) -> None:
    """Train the model of ``slice``, or continue where an earlier call was stopped.

    Args:
        slice: The resolved run; ``init_from`` names the run that it continues, if any.
        model: Folder of that run's finished training with the same seed.
        **frame: See `difftransformer.training.job.Frame`; the dataset has the parent's tokenizer.

    Raises:
        ConfigError: The run continues one that was not given, or the other way round, or their
            models differ in more than their positions.
        CheckpointError: ``model`` holds no finished training, that of another run or seed, or
            weights with another tokenizer.
        UserError: one readable line; see `difftransformer.training.job.run_job`.
        Interrupted: stopped by SIGTERM or SIGINT after writing a checkpoint (exit status 75).
    """
    parent = open_parent(slice, model, PackedDataset.open(frame["dataset"]), frame["seed"])

    def build(device: torch.device) -> Transformer:
        backend = choose_backend(slice.training.backend, device.type, slice.training.precision)
        if model is None or parent is None:
            return Transformer.build(slice.model, backend, frame["seed"]).to(device)
        child = Transformer(slice.model, backend)
        require_same_model(child.config, read_config(model), f"run {slice.run}", parent.run)
        load_weights(child, model / WEIGHTS)
        return child.to(device)

    run_job(Job(slice, frame, parent), build)
