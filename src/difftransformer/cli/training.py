"""Steps of the rules that prepare data and train."""

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
from difftransformer.provenance.layout import HISTORY, Layout
from difftransformer.provenance.published import digest
from difftransformer.provenance.reporting import reporting
from difftransformer.tracking.history import COPY, hashed
from difftransformer.tracking.run_context import JobIdentity, exclusive
from difftransformer.tracking.tracker import NullTracker

if TYPE_CHECKING:
    from difftransformer.config.run import RunSlice

FROM_SCRATCH = "DIFFTRANSFORMER_FROM_SCRATCH"
"""Trainings to do again though they had finished: a rule for all of its own, or files."""
STATE = "DIFFTRANSFORMER_STATE"
"""Folder or bucket (file:, s3:) that gets checkpoints, for another machine to resume from."""


def train_tokenizer(step: Step) -> None:
    """Train, or resolve, the tokenizer of a dataset, or take over that of its base."""
    with reporting(step.log):
        from difftransformer.config.run import DatasetSlice
        from difftransformer.data.tokenizer import train_tokenizer

        config, output = step.read(DatasetSlice), step.output("tokenizer")
        base = step.input("tokenizer")
        identity = step.identity(
            config.scale, config.dataset, config, _digest(base) + _corpus(step)
        )
    with step.job(identity, config) as running:
        with data_of(config.dataset):
            train_tokenizer(config.config, output, base)
        running.tracker.log_artifact(output)


def tokenize(step: Step) -> None:
    """Pack a corpus into memory-mapped shards with a manifest."""
    with reporting(step.log):
        from difftransformer.config.run import DatasetSlice
        from difftransformer.data.tokenise import tokenise

        config, manifest = step.read(DatasetSlice), step.output("manifest")
        tokenizer = step.input("tokenizer")
        inputs = _digest(tokenizer) + _corpus(step)
        identity = step.identity(config.scale, config.dataset, config, inputs, threads=step.threads)
    with step.job(identity, config) as running:
        slurm.requeue_in_time()
        with data_of(config.dataset):
            state = step.state(identity)
            tokenise(config.config, tokenizer, manifest.parent, state, step.threads)
        running.tracker.log_artifact(manifest)


def _corpus(step: Step) -> str:
    """Return the digest of the listing of the user's files, '' where there is none."""
    return "".join(map(digest, step.inputs("corpus")))


def _digest(path: Path | None) -> str:
    """The sha256 of a tokenizer's file, or '' where there is none."""
    if path is None:
        return ""
    if not path.is_file():
        raise DataError(f"{path}: no such file; run train_tokenizer first")
    return digest(path)


def count_ngrams(step: Step) -> None:
    """Find the n-grams that are too frequent in training for a suite."""
    with reporting(step.log):
        from difftransformer.config.measurement import NgramsSlice
        from difftransformer.data.ngrams import count_ngrams
        from difftransformer.data.packed import PackedDataset

        config, output = step.read(NgramsSlice), step.output("ngrams")
        dataset = step.required("data").parent
        read = PackedDataset.open(dataset).digest
        identity = step.identity(config.scale, config.dataset, config, read, suite=config.suite)
    with step.job(identity, config) as running:
        count_ngrams(dataset, output, config.ngrams.n, config.ngrams.max_count)
        running.tracker.log_artifact(output)


def train(step: Step) -> None:
    """Train as one job; one that Slurm stops before its time is over goes back to the queue."""
    with reporting(step.log):
        from difftransformer.config.run import RunSlice
        from difftransformer.training.interrupt import Interrupted
        from difftransformer.training.joining import leads
        from difftransformer.training.launch import is_launched, launch

        module = "adapt" if step.rule == "adapt" else "pretrain"
        work = getattr(import_module(f"difftransformer.training.{module}"), step.rule)
        config = step.read(RunSlice)
        identity = _identity(step, config)
        call = _call(work, step, config, identity)
    world = config.training.world
    if world > 1 and not is_launched():
        with reporting(step.log, mode="a"):  # the process that leads begins it
            with exclusive(step.state(identity)):
                pass  # a job that is left over ends first: else all but one lose patience
            on_gpus = config.training.device != "cpu" and bool(gpus.pool())
            status = launch(world, step.words(), on_gpus)
        raise SystemExit(status)
    try:
        _train_here(call, step, config, identity)
    except Interrupted as stop:
        if stop.signal == slurm.TIME_IS_NEARLY_OVER and leads():
            with reporting(step.log, mode="a"):
                slurm.requeue()
        raise


def _identity(step: Step, config: "RunSlice") -> JobIdentity:
    """Return which training this is.

    Raises:
        UserError: Its data or parent cannot be used.
    """
    from difftransformer.data.packed import PackedDataset
    from difftransformer.training.upstream import open_parent, training_inputs

    dataset = PackedDataset.open(step.required("data").parent)
    parent = open_parent(config, _parent(step), dataset, step.seed)
    inputs = training_inputs(dataset, parent, config.pretrained)
    upstream = () if parent is None else (parent.job_id,)
    about = {"seed": step.seed, "upstream": upstream, "threads": step.threads}
    return step.identity(config.scale, config.run, config.decisive(), inputs, **about)


def _parent(step: Step) -> Path | None:
    """Return the folder of the finished training that this one starts from."""
    return None if (result := step.input("model")) is None else result.parent


def _is_forced(step: Step) -> bool:
    """Whether the training is to start from scratch though it had finished."""
    forced = os.environ.get(FROM_SCRATCH, "").split()
    # Outputs in object storage are here below a folder that stands for their bucket.
    folder = f"/{relpath(step.output().parent)}"
    files = (relpath(Path(file).parent) for file in forced)
    return step.rule in forced or any(folder.endswith(f"/{path}") for path in files)


def _call(
    train: Callable[..., None], step: Step, config: "RunSlice", identity: JobIdentity
) -> Callable[..., None]:
    """Return the training as a call that needs a tracker."""
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
    """Return the URL that gets a copy of the job's state; '' where there is none."""
    url = os.environ.get(STATE, "").rstrip("/")
    return Layout(url, identity.scale).copied_state(*state_ids(identity)) if url else ""


def _train_here(
    call: Callable[..., None], step: Step, config: "RunSlice", identity: JobIdentity
) -> None:
    from difftransformer.training.joining import leads

    if not leads():
        with reporting(level=logging.ERROR):
            call(tracker=NullTracker())
        return
    with step.job(identity, config) as running:
        if mirror := _mirror(identity):
            running.tracker.set_tags({COPY: hashed(mirror)})
        call(tracker=running.tracker)
        output = step.output()
        for name in (HISTORY, output.name):
            running.tracker.log_artifact(output.parent / name)
