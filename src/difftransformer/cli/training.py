"""Jobs that prepare data and train models."""

import logging
import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING

from difftransformer.cli.step import Step, state_ids
from difftransformer.errors import DataError, data_of
from difftransformer.machine import gpus, slurm
from difftransformer.provenance.checksums import digest
from difftransformer.provenance.command_errors import report_errors
from difftransformer.provenance.layout import HISTORY, Layout
from difftransformer.tracking.history import COPY, hashed
from difftransformer.tracking.run_context import JobIdentity, exclusive
from difftransformer.tracking.tracker import NullTracker

if TYPE_CHECKING:
    from difftransformer.config.run import RunConfig

FROM_SCRATCH = "DIFFTRANSFORMER_FROM_SCRATCH"
"""Variable that names finished trainings to repeat: rules, for all their runs, or result files."""
STATE = "DIFFTRANSFORMER_STATE"
"""Variable with the URL (file:, s3:) for copies of checkpoints, so any machine can resume."""


def train_tokenizer(step: Step) -> None:
    """Run the job of the rule `train_tokenizer`: train or copy the tokenizer of a dataset.

    It is copied if the dataset or its base names a tokenizer.
    """
    with report_errors(step.log):
        from difftransformer.config.run import ResolvedDataset
        from difftransformer.data.tokenizer import train_tokenizer

        config, output = step.read(ResolvedDataset), step.output("tokenizer")
        base = step.input("tokenizer")
        inputs = _tokenizer_digest(base) + _corpus_digest(step)
        identity = step.identity(config.scale, config.dataset, config, inputs)
    with step.job(identity, config) as running:
        with data_of(config.dataset):
            train_tokenizer(config.config, output, base)
        running.tracker.log_artifact(output)


def tokenize(step: Step) -> None:
    """Run the job of the rule `tokenize`: pack a corpus into memory-mapped shards."""
    with report_errors(step.log):
        from difftransformer.config.run import ResolvedDataset
        from difftransformer.data.tokenize import tokenize

        config, manifest = step.read(ResolvedDataset), step.output("manifest")
        tokenizer = step.input("tokenizer")
        inputs = _tokenizer_digest(tokenizer) + _corpus_digest(step)
        identity = step.identity(config.scale, config.dataset, config, inputs, threads=step.threads)
    with step.job(identity, config) as running:
        slurm.requeue_before_time_limit()
        with data_of(config.dataset):
            state = step.state(identity)
            tokenize(config.config, tokenizer, manifest.parent, state, step.threads)
        running.tracker.log_artifact(manifest)


def _corpus_digest(step: Step) -> str:
    """Return the digest of the listing of the user's corpus files, or '' without a listing."""
    return "".join(map(digest, step.inputs("corpus")))


def _tokenizer_digest(path: Path | None) -> str:
    """Return the digest of a tokenizer file, or '' without one."""
    if path is None:
        return ""
    if not path.is_file():
        raise DataError(f"{path}: no such file; run train_tokenizer first")
    return digest(path)


def count_ngrams(step: Step) -> None:
    """Run the job of the rule `count_ngrams`: find n-grams too frequent in the training text.

    The suite in the config sets the maximum count of an n-gram.
    """
    with report_errors(step.log):
        from difftransformer.config.evaluation import NgramsConfig
        from difftransformer.data.ngrams import count_ngrams
        from difftransformer.data.packed import PackedDataset

        config, output = step.read(NgramsConfig), step.output("ngrams")
        dataset = step.required("data").parent
        inputs = PackedDataset.open(dataset).digest
        identity = step.identity(config.scale, config.dataset, config, inputs, suite=config.suite)
    with step.job(identity, config) as running:
        count_ngrams(dataset, output, config.ngrams.n, config.ngrams.max_count)
        running.tracker.log_artifact(output)


def train(step: Step) -> None:
    """Run the job of a training rule: train one run with one seed, on all its processes.

    The job is requeued if Slurm announces its time limit.
    """
    with report_errors(step.log):
        from difftransformer.config.run import RunConfig
        from difftransformer.training.interrupt import Interrupted
        from difftransformer.training.launch import is_launched, launch
        from difftransformer.training.rendezvous import is_rank0

        module = "adapt" if step.rule == "adapt" else "pretrain"
        work = getattr(import_module(f"difftransformer.training.{module}"), step.rule)
        config = step.read(RunConfig)
        identity = _identity(step, config)
        call = _call(work, step, config, identity)
    world_size = config.training.world_size
    if world_size > 1 and not is_launched():
        with report_errors(step.log, mode="a"):  # rank 0 starts the log
            with exclusive(step.state(identity)):
                pass  # wait for a leftover job here, where no other rank can time out
            on_gpus = config.training.device != "cpu" and bool(gpus.visible_gpus())
            status = launch(world_size, step.arguments(), on_gpus)
        raise SystemExit(status)
    try:
        _train_here(call, step, config, identity)
    except Interrupted as stop:
        if stop.signal == slurm.TIME_LIMIT_SIGNAL and is_rank0():
            with report_errors(step.log, mode="a"):
                slurm.requeue()
        raise


def _identity(step: Step, config: "RunConfig") -> JobIdentity:
    """Return the identity of a training job.

    Raises:
        UserError: The training data or the parent run cannot be used.
    """
    from difftransformer.data.packed import PackedDataset
    from difftransformer.training.identity import identify

    return identify(
        step.rule,
        config,
        model=_parent(step),
        dataset=PackedDataset.open(step.required("data").parent),
        seed=step.seed,
        threads=step.threads,
        code=step.code,
    )


def _parent(step: Step) -> Path | None:
    """Return the folder of the finished training whose weights this training starts from."""
    return None if (result := step.input("model")) is None else result.parent


def _is_forced(step: Step) -> bool:
    """Return whether to train from scratch although this training is finished already."""
    forced = os.environ.get(FROM_SCRATCH, "").split()
    # Outputs in object storage have a local copy in a folder named after their bucket.
    folder = f"/{relpath(step.output().parent)}"
    files = (relpath(Path(file).parent) for file in forced)
    return step.rule in forced or any(folder.endswith(f"/{path}") for path in files)


def _call(
    train: Callable[..., None], step: Step, config: "RunConfig", identity: JobIdentity
) -> Callable[..., None]:
    """Return the training as a function that needs only its tracker."""
    return partial(
        train,
        config,
        model=_parent(step),
        dataset=step.required("data").parent,
        output=step.output().parent,
        state=step.state(identity),
        mirror=_mirror(identity),
        seed=step.seed,
        threads=step.threads,
        code=step.code,
        from_scratch=_is_forced(step),
    )


def _mirror(identity: JobIdentity) -> str:
    """Return the URL for the copy of the job's state, or '' if the variable `STATE` is not set."""
    url = os.environ.get(STATE, "").rstrip("/")
    return Layout(url, identity.scale).copied_state(*state_ids(identity)) if url else ""


def _train_here(
    call: Callable[..., None], step: Step, config: "RunConfig", identity: JobIdentity
) -> None:
    from difftransformer.training.rendezvous import is_rank0

    if not is_rank0():
        with report_errors(level=logging.ERROR):
            call(tracker=NullTracker())
        return
    with step.job(identity, config) as running:
        if mirror := _mirror(identity):
            running.tracker.set_tags({COPY: hashed(mirror)})
        call(tracker=running.tracker)
        output = step.output()
        for name in (HISTORY, output.name):
            running.tracker.log_artifact(output.parent / name)
