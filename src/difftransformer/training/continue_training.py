"""Continued training: a trained model goes on with other text, its positions as they were.

Differential Transformer, appendix C: 20B tokens of mathematics, then 2B of distilled reasoning.
"""

from pathlib import Path

from difftransformer.config.run import RunSlice
from difftransformer.data.packed import PackedDataset
from difftransformer.provenance.tracking import Tracker
from difftransformer.training.continuation import continue_run, open_parent
from difftransformer.training.job import Job


def continue_training(  # noqa: PLR0913 - a job's whole frame, by keyword
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
    job = Job("continue_training", slice, dataset, output, state, seed, threads, code, parent)
    continue_run(job, model, tracker)
