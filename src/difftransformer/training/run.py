"""A training from its first step to its published outputs, whatever it starts from.

The state folder holds what a resumed call needs (checkpoints, heartbeat), and the caller holds its
lock; the output folder is written at the end only, its ``training.json`` last. A mark in the state
folder then says that the training was through.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import torch

from difftransformer.config.run import RunConfig, require_same_model
from difftransformer.convert.checkpoint import WEIGHTS, load_weights, read_config
from difftransformer.data.loader import BatchLoader
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError
from difftransformer.machine.gpus import bf16_peak
from difftransformer.models.language_model import LanguageModel
from difftransformer.models.linear import matmul_backend
from difftransformer.models.sizes import training_flops
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.checksums import weights_digest
from difftransformer.provenance.layout import TRAINING
from difftransformer.provenance.result import Result, origin
from difftransformer.tracking.tracker import Tracker
from difftransformer.training.checkpoint import CheckpointStore
from difftransformer.training.interrupt import listening
from difftransformer.training.joining import joined
from difftransformer.training.measure import Evaluations, final_lambdas, lambda_depends_on_input
from difftransformer.training.method import Adapter, Method
from difftransformer.training.mirror import Mirror
from difftransformer.training.objective import Objective, document_end
from difftransformer.training.outputs import Metrics, publish, training_metrics
from difftransformer.training.process import prepare_process, resolve_device, seed_everything
from difftransformer.training.profiling import profiled
from difftransformer.training.progress import Progress
from difftransformer.training.state_folder import FINISHED, KEPT_CHECKPOINTS
from difftransformer.training.team import Team
from difftransformer.training.trainer import Trainer
from difftransformer.training.upstream import identify

READ_AHEAD = 2
"""Batches that are read while a GPU computes; a thread would take from the cores of a CPU."""

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
    mirror: NotRequired[str]
    """URL that gets a copy of the state, for another machine to go on from; see `Mirror`."""
    from_scratch: NotRequired[bool]
    """Train again what had finished, instead of publishing it again from its last checkpoint."""


@dataclass(frozen=True)
class Start:
    """A model that is ready to be trained.

    Attributes:
        model: What trains.
        method: What of it trains, and how.
        backend: Name of its attention implementation, for the record.
        finish: Gives the trained model, plain, with metrics of how it came about; once.
        adapter: Gives what there is beside the model, before `finish`.
    """

    model: LanguageModel
    method: Method
    backend: str
    finish: Callable[[], tuple[LanguageModel, Metrics]]
    adapter: Callable[[], Adapter | None] = lambda: None


Starting = Callable[[PackedDataset, torch.device, Team], Start]
"""Makes the start of a training from its data, on a device, for the processes that share it."""


def train_run(
    stage: str, slice: RunConfig, model: Path | None, starting: Starting, frame: Frame
) -> None:
    """Train a run, or continue from its newest whole checkpoint; publish its outputs.

    A job whose last step has its checkpoint only publishes, so a finished run costs seconds, unless
    it is to start from scratch.

    Args:
        stage: Name of the job, part of its identity.
        slice: The resolved run.
        model: Folder of the finished training that it starts from, if any.
        starting: Makes the model that it starts with.
        frame: See `Frame`.

    Raises:
        ConfigError, CheckpointError, UserError, Interrupted: See `pretrain.pretrain`.
    """
    dataset = PackedDataset.open(frame["dataset"])
    config, seed, tracker = slice.training, frame["seed"], frame["tracker"]
    threads, code = frame["threads"], frame["code"]
    identity = identify(
        stage, slice, model=model, dataset=dataset, seed=seed, threads=threads, code=code
    )
    started = datetime.now(UTC)
    device = resolve_device(config)
    deterministic = prepare_process(config, device, threads)
    resolved: dict[str, Any] = {"device": str(device), "deterministic": deterministic}
    if device.type == "cpu":
        resolved["matmul_backend"] = matmul_backend()
    with joined(config.world_size, device) as team, listening() as stop:
        seed_everything(seed)
        start = starting(dataset, device, team)
        resolved["backend"] = start.backend
        tracker.log_params({"resolved": resolved})
        if identity.upstream:
            tracker.set_tags({"upstream": " ".join(identity.upstream)})
        trainer = _trainer(slice, seed, start, dataset, device, team)
        if model is not None:
            trainer.parent = weights_digest(model / TRAINING)
        with CheckpointStore(
            frame["state"], keep=KEPT_CHECKPOINTS, identity=identity.fingerprint, team=team
        ) as store:
            mirror = Mirror(frame["state"], frame.get("mirror", ""), team)
            _resume(trainer, store, mirror, frame)
            progress = Progress(
                frame["state"],
                run=slice.run,
                seed=seed,
                step=trainer.step,
                tokens_per_step=config.tokens_per_step,
                peak_speed=_peak_speed(slice, start.model, device),
                shown=team.is_rank0,
            )
            with mirror.copying(), profiled(frame["state"], tracker, team.is_rank0) as after_step:
                trainer.train(store, progress, tracker, stop, after_step)
        history, adapter = trainer.history, start.adapter()
        through, lambdas = trainer.diverged_at is None, dict[str, float]()
        by_tokens = lambda_depends_on_input(start.model)
        if through and by_tokens:
            with team.whole():  # where it trains: what is finished may lie on the CPU
                lambdas = final_lambdas(start.model, dataset, config)
        finished, own = start.finish()
        if not team.is_rank0:
            return
        metrics = training_metrics(finished, history, config, trainer.step, trainer.diverged_at)
        metrics |= own | lambdas
        if through and not by_tokens:
            metrics |= final_lambdas(finished, dataset, config)
        # The curves have their last points already; MLflow shows what is left as a group.
        curves = {"train_loss"}.union(*history.rows)  # which is the last point of `loss`
        once = {name: value for name, value in metrics.items() if name not in curves}
        known = {f"summary/{name}": float(one) for name, one in once.items() if one is not None}
        tracker.log_metrics(known, trainer.step)
        result = Result(
            kind="training",
            job_id=identity.job_id,
            scale=slice.scale,
            run=slice.run,
            seed=seed,
            metrics=metrics,
            settings=slice.model_dump(mode="json")
            | {
                "resolved": resolved,
                "upstream": list(identity.upstream),
                "held_out": held_out(dataset),
            },
            provenance=origin(
                identity.fingerprint,
                started=started,
                threads=threads,
                earlier=trainer.earlier_seconds,
            ),
        )
        kept = [store.intermediate_checkpoint(step) for step in config.intermediate_steps]
        publish(frame["output"], finished, history, dataset, result, kept, adapter)
        (frame["state"] / FINISHED).touch()
        mirror.finish()


def open_weights(
    slice: RunConfig, folder: Path, child: Transformer, team: Team | None = None
) -> Transformer:
    """Return the model of a run, ``child``, with the weights of the training that it continues.

    Raises:
        ConfigError: Their models differ in more than their positions.
        CheckpointError: ``folder`` holds no whole model.
    """
    parent = read_config(folder)
    require_same_model(child.config, parent, f"run {slice.run}", slice.init_from or "")
    load_weights(child, folder / WEIGHTS, (team or Team()).share)
    return child


def held_out(dataset: PackedDataset) -> dict[str, float | int] | None:
    """Size of the validation text and its train/test overlap; None for generated rows."""
    if (overlap := dataset.manifest.overlap) is None:
        return None
    split = dataset.manifest.splits["validation"]
    sizes = {"documents": split.documents, "tokens": split.tokens}
    return sizes | {"n": overlap.n, "overlap": overlap.share}


def _trainer(
    slice: RunConfig,
    seed: int,
    start: Start,
    dataset: PackedDataset,
    device: torch.device,
    team: Team,
) -> Trainer:
    config, manifest = slice.training, dataset.manifest
    if manifest.vocab_size > slice.model.vocab_size:
        raise ConfigError(
            f"model.vocab_size is {slice.model.vocab_size}, but {dataset.folder} has token ids "
            f"up to {manifest.vocab_size - 1}: set it to at least {manifest.vocab_size}"
        )
    loader = BatchLoader(
        dataset,
        "train",
        batch_size=config.local_batch_size,
        seq_len=config.seq_len,
        seed=seed,
        rank=team.rank,
        world_size=team.world_size,
        prefetch_batches=READ_AHEAD if device.type == "cuda" else 0,
    )
    objective = Objective(
        seq_len=config.seq_len,
        chunk=config.loss_chunk,
        answers=manifest.answer_positions,
        device=device,
        compiled=config.compile,
        end=document_end(config, dataset),
    )
    measure = Evaluations(start.model, dataset, config, objective, team.whole)
    return Trainer(
        start.model,
        start.method,
        config,
        loader=loader,
        objective=objective,
        measure=measure,
        device=device,
        team=team,
    )


def _peak_speed(slice: RunConfig, model: LanguageModel, device: torch.device) -> float | None:
    """Return the tokens per second at the peak FLOP/s of the GPUs.

    None on a CPU, in fp32, on GPUs that `bf16_peak` lacks, and where FLOPs are not counted: for
    pretrained models and where some parameters are frozen.
    """
    counted = not slice.pretrained and all(p.requires_grad for p in model.parameters())
    if device.type != "cuda" or slice.training.precision != "bf16" or not counted:
        return None
    if (peak := bf16_peak(torch.cuda.get_device_name(device))) is None:
        return None
    flops = training_flops(slice.model, slice.training.seq_len, causal=True)
    return slice.training.world_size * peak / flops


def _resume(trainer: Trainer, store: CheckpointStore, mirror: Mirror, frame: Frame) -> None:
    tracker, mark = frame["tracker"], frame["state"] / FINISHED
    was_finished = mark.exists()
    from_scratch = was_finished and frame.get("from_scratch", False)
    if from_scratch:
        logger.info("this training had finished and is asked for again: it starts from scratch")
        store.clear()
        mirror.clear()
    newest = mirror.newest_whole(store, trainer.tensors())
    if newest is not None and newest.state.get("parent", trainer.parent) != trainer.parent:
        logger.warning("the parent run was retrained: starting from scratch")
        store.clear()
        mirror.clear()
        newest, from_scratch = None, True
    if newest is None and (damaged := store.damaged()):
        logger.warning(
            "no complete checkpoint is left (damaged: %s): training starts from step 0",
            ", ".join(damaged),
        )
    mark.unlink(missing_ok=True)  # after newest_whole all processes have looked
    if newest is None and not from_scratch:
        tracker.rewind(0)
    if newest is not None:
        trainer.restore(newest)
        for row in trainer.history.rows:  # a full disk may have lost some; the others are ignored
            values = {name: float(value) for name, value in row.items() if name != "step"}
            tracker.log_metrics(values, int(row["step"]))
        tracker.rewind(newest.step)
        logger.info("resuming from the checkpoint of step %d", newest.step)
        if was_finished:
            logger.info(
                "this training had finished: it is published again and not trained again, which "
                "forcing it in the workflow does"
            )
