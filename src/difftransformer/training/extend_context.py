"""Long-context extension: a trained model goes on at a longer length with slower rotary positions.

Differential Transformer, section 3.3: the 3B models continue for 1.5B tokens at 64K with theta
640000 on a corpus up-sampled by sequence length. Everything but the weights starts afresh, the
optimiser and the learning rate among them: the paper does not say that it kept any.
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
from difftransformer.provenance.tracking import Tracker
from difftransformer.training.job import Job, run_job
from difftransformer.training.upstream import require_same_tokenizer, require_trained


def extend_context(  # noqa: PLR0913 - a job's whole frame, by keyword
    slice: RunSlice,
    *,
    model: Path,
    dataset: Path,
    output: Path,
    state: Path,
    seed: int,
    threads: int,
    tracker: Tracker,
    code: str,
) -> None:
    """Train the model of ``slice`` from the weights of its parent; resume an earlier call.

    Args:
        slice: The resolved run; ``init_from`` names its parent.
        model: Folder of the parent's finished training with the same seed.
        dataset: Folder of a packed dataset with the parent's tokenizer.
        output: Folder that gets what `pretrain` writes.
        state: Folder of this job and fingerprint alone: lock, checkpoints, progress.json.
        seed: Seed of the parent, and of the order of the data.
        threads: Threads of one operation; they decide the order of sums, hence the bits.
        tracker: Receives params, metric points and the speed.
        code: Fingerprint of the code that trains.

    Raises:
        CheckpointError: the folder holds no finished training, that of another run or seed, or
            weights with another tokenizer.
        UserError: one readable line; see `difftransformer.training.job.run_job`.
        Interrupted: stopped by SIGTERM or SIGINT after writing a checkpoint (exit status 75).
    """
    parent = open_parent(slice, model, PackedDataset.open(dataset), seed)

    def build(device: torch.device) -> Transformer:
        backend = choose_backend(slice.training.backend, device.type, slice.training.precision)
        longer = Transformer(slice.model, backend)
        require_same_model(longer.config, read_config(model), f"run {slice.run}", parent.run)
        load_weights(longer, model / WEIGHTS)
        return longer.to(device)

    job = Job("extend_context", slice, dataset, output, state, seed, threads, code, parent)
    run_job(job, build, tracker)


def open_parent(slice: RunSlice, model: Path, dataset: PackedDataset, seed: int) -> Result:
    """Return the result of the training that a run continues, once it is known to fit.

    Raises:
        ConfigError: The run continues no other.
        CheckpointError: No finished training of the parent with this seed and tokenizer.
    """
    if slice.init_from is None:
        raise ConfigError(
            f"run {slice.run} has no init_from, so there is nothing to extend: train it with "
            "`pretrain`, or name the run it continues in config/runs.yaml"
        )
    parent = require_trained(model, slice.init_from, seed)
    require_same_tokenizer(
        model, dataset, f"give the dataset of run {slice.run} the parent's as its base"
    )
    return parent
