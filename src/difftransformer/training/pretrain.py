"""Pre-training: a model on a packed dataset, from scratch or from the weights of a finished run.

Differential Transformer goes on with longer positions (section 3.3: 1.5B tokens at 64K, theta
640000) and with other text (appendix C: mathematics, then distilled reasoning). Everything but the
weights starts afresh then, the optimiser and the learning rate among them: the paper does not say
that it kept any.

The state folder holds what a resumed call needs (checkpoints, heartbeat), and the caller holds its
lock; the output folder is written at the end only, its ``training.json`` last. A mark in the state
folder then says that the training was through.
"""

import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import NotRequired, TypedDict, Unpack

import torch

from difftransformer.config.run import RunSlice, require_same_model
from difftransformer.data.loader import BatchLoader
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError
from difftransformer.models.checkpoint import WEIGHTS, load_weights, read_config
from difftransformer.models.kernels import choose_backend
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.fingerprint import job_fingerprint
from difftransformer.provenance.result import Result, job_id, origin
from difftransformer.provenance.tracking import Tracker
from difftransformer.training.checkpoint import CheckpointStore
from difftransformer.training.interrupt import listening
from difftransformer.training.measure import Measurements
from difftransformer.training.memory import require_memory
from difftransformer.training.objective import Objective
from difftransformer.training.outputs import final_lambdas, publish, training_metrics
from difftransformer.training.process import prepare_process, resolve_device, seed_everything
from difftransformer.training.progress import Progress
from difftransformer.training.trainer import Trainer
from difftransformer.training.upstream import open_parent, training_inputs

STAGE, FINISHED = "pretrain", "finished"

logger = logging.getLogger(__name__)


class Frame(TypedDict):
    """What the caller of a training gives besides the run itself."""

    dataset: Path
    """Folder of a packed dataset."""
    output: Path
    """Folder that gets model.safetensors, config.json, tokenizer.json where the dataset has one,
    history.csv and, last, training.json."""
    state: Path
    """Folder of this job and fingerprint alone: lock, checkpoints, progress.json."""
    seed: int
    """Seed of the initial weights and of the order of the data."""
    threads: int
    """Threads of one operation; they decide the order of sums, hence the bits."""
    tracker: Tracker
    """Receives params, metric points and the speed."""
    code: str
    """Fingerprint of the code that trains."""
    afresh: NotRequired[bool]
    """Train again what had finished, instead of publishing it again from its last checkpoint."""


def pretrain(slice: RunSlice, *, model: Path | None = None, **frame: Unpack[Frame]) -> None:
    """Train the model of ``slice``, or continue from the newest whole checkpoint; publish outputs.

    A job whose last step has its checkpoint only publishes, so a finished run costs seconds, unless
    it is to start afresh.

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
    dataset = PackedDataset.open(frame["dataset"])
    parent = open_parent(slice, model, dataset, frame["seed"])
    started = datetime.now(UTC)
    config, seed, tracker = slice.training, frame["seed"], frame["tracker"]
    device = resolve_device(config)
    deterministic = prepare_process(config, device, frame["threads"])
    resolved = {"device": str(device), "deterministic": deterministic}
    with listening() as stop:
        inputs = training_inputs(dataset, parent)
        fingerprint = job_fingerprint(STAGE, slice, frame["code"], inputs, seed)
        require_memory(slice, device)
        seed_everything(seed)
        transformer = _initial_model(slice, seed, model, parent, device)
        resolved["backend"] = transformer.backend
        tracker.log_params({"resolved": resolved})
        upstream = [] if parent is None else [parent.job_id]
        if upstream:
            tracker.set_tags({"upstream": " ".join(upstream)})
        trainer = _trainer(slice, seed, transformer, dataset, device)
        store = CheckpointStore(frame["state"], keep=config.keep_checkpoints, identity=fingerprint)
        _resume(trainer, store, frame)
        progress = Progress(
            frame["state"],
            run=slice.run,
            seed=seed,
            step=trainer.step,
            tokens_per_step=config.tokens_per_step,
        )
        trainer.train(store, progress, tracker, stop)
        history = trainer.history
        metrics = training_metrics(transformer, history, config, trainer.step, trainer.diverged_at)
        if trainer.diverged_at is None:
            metrics |= final_lambdas(transformer, dataset, config)
        known = {name: float(value) for name, value in metrics.items() if value is not None}
        tracker.log_metrics(known, trainer.step)
        result = Result(
            kind="training",
            job_id=job_id(STAGE, slice.run, seed, fingerprint),
            scale=slice.scale,
            run=slice.run,
            seed=seed,
            metrics=metrics,
            settings=slice.model_dump(mode="json")
            | {"resolved": resolved, "upstream": upstream, "held_out": held_out(dataset)},
            provenance=origin(fingerprint, started=started, threads=frame["threads"]),
        )
        kept = [store.kept_weights(step) for step in config.kept_steps]
        publish(frame["output"], transformer, history, dataset, result, kept)
        (frame["state"] / FINISHED).touch()


def held_out(dataset: PackedDataset) -> dict[str, float | int] | None:
    """Size of the validation text and what of it stands in training; None for generated rows."""
    if (leak := dataset.manifest.leak) is None:
        return None
    split = dataset.manifest.splits["validation"]
    sizes = {"documents": split.documents, "tokens": split.tokens}
    return sizes | {"n": leak.n, "leak": leak.share}


def _initial_model(
    slice: RunSlice, seed: int, folder: Path | None, parent: Result | None, device: torch.device
) -> Transformer:
    """Return the model that training starts from: drawn, or with the weights of the parent."""
    backend = choose_backend(slice.training.backend, device.type, slice.training.precision)
    if folder is None or parent is None:
        return Transformer.build(slice.model, backend, seed).to(device)
    child = Transformer(slice.model, backend)
    require_same_model(child.config, read_config(folder), f"run {slice.run}", parent.run)
    load_weights(child, folder / WEIGHTS)
    return child.to(device)


def _trainer(
    slice: RunSlice, seed: int, model: Transformer, dataset: PackedDataset, device: torch.device
) -> Trainer:
    config, manifest = slice.training, dataset.manifest
    if manifest.vocab_size > slice.model.vocab_size:
        raise ConfigError(
            f"model.vocab_size is {slice.model.vocab_size}, but {dataset.folder} has token ids "
            f"up to {manifest.vocab_size - 1}: set it to at least {manifest.vocab_size}"
        )
    _require_one_process()
    loader = BatchLoader(
        dataset, "train", batch_size=config.batch_size, seq_len=config.seq_len, seed=seed
    )
    objective = Objective(
        seq_len=config.seq_len,
        chunk=config.loss_chunk,
        answers=manifest.answer_positions,
        weights=config.objective,
        device=device,
    )
    measure = Measurements(model, dataset, config, objective)
    return Trainer(
        model, config, loader=loader, objective=objective, measure=measure, device=device
    )


def _require_one_process() -> None:
    """Refuse to be one of several processes, as torchrun starts them.

    The trainer cannot join them yet: each would silently train the whole model on its own.
    """
    if (world := int(os.environ.get("WORLD_SIZE", "1"))) != 1:
        raise ConfigError(
            f"WORLD_SIZE is {world}, but training runs in one process: start it without torchrun"
        )


def _resume(trainer: Trainer, store: CheckpointStore, frame: Frame) -> None:
    tracker, mark = frame["tracker"], frame["state"] / FINISHED
    was_finished = mark.exists()
    if was_finished and frame.get("afresh", False):
        logger.info("this training had finished and is asked for again: it starts afresh")
        store.clear()
    newest = store.newest_whole(trainer.tensor_names())
    mark.unlink(missing_ok=True)
    if newest is not None:
        trainer.restore(newest)
        for row in trainer.history.rows:  # what the journal has it keeps; a full disk cost it some
            values = {name: float(value) for name, value in row.items() if name != "step"}
            tracker.log_metrics(values, int(row["step"]))
        tracker.rewind(newest.step)
        logger.info("resuming from the checkpoint of step %d", newest.step)
        if was_finished:
            logger.info(
                "this training had finished: it is published again and not trained again, which "
                "forcing it in the workflow does, or --afresh %s",
                STAGE,
            )
