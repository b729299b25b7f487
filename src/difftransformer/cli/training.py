"""Subcommands of the rules that train."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from difftransformer.cli.frame import (
    Code,
    Dataset,
    Log,
    Root,
    Seed,
    Slice,
    Threads,
    Uri,
    command,
    job,
    read,
    state,
)
from difftransformer.provenance.fingerprint import job_fingerprint
from difftransformer.provenance.job import JobIdentity, reporting

if TYPE_CHECKING:
    from difftransformer.config.run import RunSlice

Trained = Annotated[
    Path, typer.Option("--output", help="training.json; weights are written beside it.")
]
Parent = Annotated[Path, typer.Option(help="training.json of the run that goes on.")]


@command
def pretrain(
    slice: Slice,
    dataset: Dataset,
    output: Trained,
    seed: Seed = 0,
    threads: Threads = 1,
    code: Code = "",
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Train a model from scratch, or continue where an earlier call was stopped."""
    with reporting(log):
        from difftransformer.training.pretrain import pretrain

        config, identity = _identify("pretrain", slice, dataset, None, seed, threads, code)
    train = partial(pretrain, config, dataset=dataset.parent, code=code)
    _train(train, identity, config, output, results, tracking, log)


@command
def extend_context(
    slice: Slice,
    model: Parent,
    dataset: Dataset,
    output: Trained,
    seed: Seed = 0,
    threads: Threads = 1,
    code: Code = "",
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Train a finished run on at a longer context, or continue where an earlier call stopped."""
    with reporting(log):
        from difftransformer.training.extend_context import extend_context

        config, identity = _identify("extend_context", slice, dataset, model, seed, threads, code)
    train = partial(extend_context, config, model=model.parent, dataset=dataset.parent, code=code)
    _train(train, identity, config, output, results, tracking, log)


@command
def continue_training(
    slice: Slice,
    model: Parent,
    dataset: Dataset,
    output: Trained,
    seed: Seed = 0,
    threads: Threads = 1,
    code: Code = "",
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Train a finished run on with other text, or continue where an earlier call stopped."""
    with reporting(log):
        from difftransformer.training.continue_training import continue_training

        config, identity = _identify(
            "continue_training", slice, dataset, model, seed, threads, code
        )
    train = partial(
        continue_training, config, model=model.parent, dataset=dataset.parent, code=code
    )
    _train(train, identity, config, output, results, tracking, log)


def _identify(
    rule: str,
    slice: Path,
    dataset: Path,
    model: Path | None,
    seed: int,
    threads: int,
    code: str,
) -> tuple["RunSlice", JobIdentity]:
    """Return the run to train and which job that is; ``model`` is what it continues."""
    from difftransformer.config.run import RunSlice
    from difftransformer.data.packed import PackedDataset
    from difftransformer.training.continuation import open_parent
    from difftransformer.training.upstream import training_inputs

    config = read(slice, RunSlice)
    opened = PackedDataset.open(dataset.parent)
    parent = None if model is None else open_parent(config, model.parent, opened, seed)
    inputs = training_inputs(opened, parent)
    return config, JobIdentity(
        rule=rule,
        stage=rule,
        scale=config.scale,
        run=config.run,
        seed=seed,
        fingerprint=job_fingerprint(rule, config, code, inputs, seed),
        upstream=() if parent is None else (parent.job_id,),
        threads=threads,
    )


def _train(
    train: Callable[..., None],
    identity: JobIdentity,
    config: "RunSlice",
    output: Path,
    results: Path,
    tracking: str,
    log: Path | None,
) -> None:
    """Frame a training as a tracked job, with its history and its result as artifacts."""
    with job(identity, config, results, tracking, log) as running:
        train(
            output=output.parent,
            state=state(results, identity),
            seed=identity.seed,
            threads=identity.threads,
            tracker=running.tracker,
        )
        for name in ("history.csv", output.name):
            running.tracker.log_artifact(output.parent / name)
