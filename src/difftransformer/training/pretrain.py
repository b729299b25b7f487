"""Pre-training from scratch: a freshly initialised model on a packed dataset."""

from pathlib import Path

import torch

from difftransformer.config.run import RunSlice
from difftransformer.errors import ConfigError
from difftransformer.models.kernels import choose_backend
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.tracking import Tracker
from difftransformer.training.interrupt import Interrupted
from difftransformer.training.job import Job, run_job

__all__ = ["Interrupted", "pretrain"]


def pretrain(
    slice: RunSlice,
    *,
    dataset: Path,
    output: Path,
    state: Path,
    seed: int,
    threads: int,
    tracker: Tracker,
    code: str,
) -> None:
    """Train the model of ``slice`` from scratch, or continue where an earlier call was stopped.

    Args:
        slice: The resolved run.
        dataset: Folder of a packed dataset.
        output: Folder that gets model.safetensors, config.json, tokenizer.json where the dataset
            has one, history.csv and, last, training.json.
        state: Folder of this job and fingerprint alone: lock, checkpoints, progress.json.
        seed: Seed of the initial weights and of the order of the data.
        threads: Threads of one operation; they decide the order of sums, hence the bits.
        tracker: Receives params, metric points and the speed.
        code: Fingerprint of the code that trains.

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
        return Transformer.build(slice.model, backend, seed).to(device)

    job = Job("pretrain", slice, dataset, output, state, seed, threads, code)
    run_job(job, build, tracker)
