"""Run a training job: set up, resume, train, publish the outputs.

The state folder has the checkpoints and the heartbeat, and the caller holds its lock. The output
folder is written at the end, its ``training.json`` last; then the state folder is marked finished.
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
from difftransformer.training.identity import identify
from difftransformer.training.interrupt import catch_stop_signals
from difftransformer.training.method import Adapter, Method
from difftransformer.training.mirror import Mirror
from difftransformer.training.objective import Objective, document_end
from difftransformer.training.outputs import Metrics, publish, training_metrics
from difftransformer.training.process import prepare_process, resolve_device, seed_everything
from difftransformer.training.process_group import ProcessGroup
from difftransformer.training.profiling import profiled
from difftransformer.training.progress import Progress
from difftransformer.training.rendezvous import init_process_group
from difftransformer.training.state_folder import FINISHED, KEPT_CHECKPOINTS
from difftransformer.training.trainer import Trainer
from difftransformer.training.validation import Validation, final_lambdas, lambda_depends_on_input

READ_AHEAD = 2
"""Batches to read ahead while a GPU computes; on a CPU a thread would compete for cores."""

logger = logging.getLogger(__name__)


class JobArguments(TypedDict):
    """Arguments of a training job besides the resolved config of the run."""

    dataset: Path
    """Folder of a packed dataset."""
    output: Path
    """Output folder for model.safetensors, config.json, tokenizer.json if the dataset has one,
    history.csv and, last, training.json."""
    state: Path
    """State folder of this job and fingerprint, with checkpoints and progress.json."""
    seed: int
    """Seed of the initial weights and of the order of the data."""
    threads: int
    """Threads per operation, which determine the order of sums and thus the exact result."""
    tracker: Tracker
    """Tracker that receives the parameters and metrics of the job."""
    code: str
    """Fingerprint of the training code."""
    mirror: NotRequired[str]
    """URL for a copy of the checkpoints, from which another machine can resume; see `Mirror`."""
    from_scratch: NotRequired[bool]
    """Whether to train again if finished, instead of publishing the last checkpoint again."""


@dataclass(frozen=True)
class TrainSetup:
    """A model that is ready to be trained, with its method.

    Attributes:
        model: The model, sharded over the process group.
        method: The trainable parameters and their optimizer.
        backend: Name of the attention implementation, for the record.
        finish: Function that returns the full trained model and the method's metrics; to be
            called once.
        adapter: Function that returns the adapter, if there is one; to be called before `finish`.
    """

    model: LanguageModel
    method: Method
    backend: str
    finish: Callable[[], tuple[LanguageModel, Metrics]]
    adapter: Callable[[], Adapter | None] = lambda: None


MakeSetup = Callable[[PackedDataset, torch.device, ProcessGroup], TrainSetup]
"""Function that builds the model and method for a dataset, a device and a process group."""


def train_run(
    stage: str, run_config: RunConfig, model: Path | None, make_setup: MakeSetup, job: JobArguments
) -> None:
    """Train a run, or resume it from its latest valid checkpoint, and write its outputs.

    With a checkpoint of the last step, only the outputs are written, unless the job is to start
    from scratch.

    Args:
        stage: Name of the job, part of its identity.
        run_config: The resolved config.
        model: Folder of the finished training to start from, if any.
        make_setup: Function that builds the initial model and its method.
        job: The other arguments of the job.

    Raises:
        ConfigError, CheckpointError, UserError, Interrupted: See `pretrain.pretrain`.
    """
    dataset = PackedDataset.open(job["dataset"])
    config, seed, tracker = run_config.training, job["seed"], job["tracker"]
    threads, code = job["threads"], job["code"]
    identity = identify(
        stage, run_config, model=model, dataset=dataset, seed=seed, threads=threads, code=code
    )
    started = datetime.now(UTC)
    device = resolve_device(config)
    deterministic = prepare_process(config, device, threads)
    resolved: dict[str, Any] = {"device": str(device), "deterministic": deterministic}
    if device.type == "cpu":
        resolved["matmul_backend"] = matmul_backend()
    with init_process_group(config.world_size, device) as group, catch_stop_signals() as stop:
        seed_everything(seed)
        setup = make_setup(dataset, device, group)
        resolved["backend"] = setup.backend
        tracker.log_params({"resolved": resolved})
        if identity.upstream:
            tracker.set_tags({"upstream": " ".join(identity.upstream)})
        trainer = _trainer(run_config, seed, setup, dataset, device, group)
        if model is not None:
            trainer.parent = weights_digest(model / TRAINING)
        with CheckpointStore(
            job["state"], keep=KEPT_CHECKPOINTS, identity=identity.fingerprint, group=group
        ) as store:
            mirror = Mirror(job["state"], job.get("mirror", ""), group)
            _resume(trainer, store, mirror, job)
            progress = Progress(
                job["state"],
                run=run_config.run,
                seed=seed,
                step=trainer.step,
                tokens_per_step=config.tokens_per_step,
                peak_speed=_peak_speed(run_config, setup.model, device),
                enabled=group.is_rank0,
            )
            with mirror.copying(), profiled(job["state"], tracker, group.is_rank0) as after_step:
                trainer.train(store, progress, tracker, stop, after_step)
        history, adapter = trainer.history, setup.adapter()
        completed, lambdas = trainer.diverged_at is None, dict[str, float]()
        by_tokens = lambda_depends_on_input(setup.model)
        if completed and by_tokens:
            with group.unsharded():  # on its device: the finished model may be on the CPU
                lambdas = final_lambdas(setup.model, dataset, config)
        finished, method_metrics = setup.finish()
        if not group.is_rank0:
            return
        metrics = training_metrics(finished, history, config, trainer.step, trainer.diverged_at)
        metrics |= method_metrics | lambdas
        if completed and not by_tokens:
            metrics |= final_lambdas(finished, dataset, config)
        # Curves have these points already; MLflow shows the others as a group.
        curves = {"train_loss"}.union(*history.rows)  # train_loss is the last point of `loss`
        summary = {
            f"summary/{name}": float(value)
            for name, value in metrics.items()
            if name not in curves and value is not None
        }
        tracker.log_metrics(summary, trainer.step)
        result = Result(
            kind="training",
            job_id=identity.job_id,
            scale=run_config.scale,
            run=run_config.run,
            seed=seed,
            metrics=metrics,
            settings=run_config.model_dump(mode="json")
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
        weights = [store.intermediate_checkpoint(step) for step in config.intermediate_steps]
        publish(job["output"], finished, history, dataset, result, weights, adapter)
        (job["state"] / FINISHED).touch()
        mirror.finish()


def open_weights(
    run_config: RunConfig, folder: Path, child: Transformer, group: ProcessGroup | None = None
) -> Transformer:
    """Return ``child``, the model of a run, with the weights of its parent run in ``folder``.

    Raises:
        ConfigError: The models differ in more than their positions.
        CheckpointError: ``folder`` has no complete model.
    """
    parent = read_config(folder)
    require_same_model(child.config, parent, f"run {run_config.run}", run_config.init_from or "")
    load_weights(child, folder / WEIGHTS, (group or ProcessGroup()).shard_tensor)
    return child


def held_out(dataset: PackedDataset) -> dict[str, float | int] | None:
    """Return the size and train/test overlap of a dataset's validation text.

    None for generated rows.
    """
    if (overlap := dataset.manifest.overlap) is None:
        return None
    split = dataset.manifest.splits["validation"]
    sizes = {"documents": split.documents, "tokens": split.tokens}
    return sizes | {"n": overlap.n, "overlap": overlap.share}


def _trainer(
    run_config: RunConfig,
    seed: int,
    setup: TrainSetup,
    dataset: PackedDataset,
    device: torch.device,
    group: ProcessGroup,
) -> Trainer:
    config, manifest = run_config.training, dataset.manifest
    if manifest.vocab_size > run_config.model.vocab_size:
        raise ConfigError(
            f"model.vocab_size is {run_config.model.vocab_size}, but {dataset.folder} has token "
            f"ids up to {manifest.vocab_size - 1}: set it to at least {manifest.vocab_size}"
        )
    loader = BatchLoader(
        dataset,
        "train",
        batch_size=config.local_batch_size,
        seq_len=config.seq_len,
        seed=seed,
        rank=group.rank,
        world_size=group.world_size,
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
    validate = Validation(setup.model, dataset, config, objective, group.unsharded)
    return Trainer(
        setup.model,
        setup.method,
        config,
        loader=loader,
        objective=objective,
        validate=validate,
        device=device,
        group=group,
    )


def _peak_speed(run_config: RunConfig, model: LanguageModel, device: torch.device) -> float | None:
    """Return the tokens per second at the peak FLOP/s of the GPUs, for the MFU.

    None on a CPU, in fp32, on GPUs without a `bf16_peak`, for pretrained models and with frozen
    parameters, whose FLOPs are not counted.
    """
    is_counted = not run_config.pretrained and all(p.requires_grad for p in model.parameters())
    if device.type != "cuda" or run_config.training.precision != "bf16" or not is_counted:
        return None
    if (peak := bf16_peak(torch.cuda.get_device_name(device))) is None:
        return None
    flops = training_flops(run_config.model, run_config.training.seq_len, causal=True)
    return run_config.training.world_size * peak / flops


def _resume(trainer: Trainer, store: CheckpointStore, mirror: Mirror, job: JobArguments) -> None:
    tracker, mark = job["tracker"], job["state"] / FINISHED
    was_finished = mark.exists()
    from_scratch = was_finished and job.get("from_scratch", False)
    if from_scratch:
        logger.info("this training had finished and was forced: starting from scratch")
        store.clear()
        mirror.clear()
    newest = mirror.latest_valid(store, trainer.tensors())
    if newest is not None and newest.metadata.get("parent", trainer.parent) != trainer.parent:
        logger.warning("the parent run was retrained: starting from scratch")
        store.clear()
        mirror.clear()
        newest, from_scratch = None, True
    if newest is None and (damaged := store.damaged()):
        logger.warning(
            "no complete checkpoint is left (damaged: %s): training starts from step 0",
            ", ".join(damaged),
        )
    mark.unlink(missing_ok=True)  # after latest_valid, which all processes have reached
    if newest is None and not from_scratch:
        tracker.rewind(0)
    if newest is not None:
        trainer.restore(newest)
        for (
            row
        ) in trainer.history.rows:  # a full disk may have lost some; repeated points are ignored
            values = {name: float(value) for name, value in row.items() if name != "step"}
            tracker.log_metrics(values, int(row["step"]))
        tracker.rewind(newest.step)
        logger.info("resuming from the checkpoint of step %d", newest.step)
        if was_finished:
            logger.info(
                "this training had finished: publishing it again without training; force the rule "
                "to train again"
            )
