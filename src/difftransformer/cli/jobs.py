"""Subcommands of the rules that prepare data, train and evaluate."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BaseModel

from difftransformer.cli.frame import (
    Code,
    Dataset,
    Log,
    Output,
    Root,
    Seed,
    Slice,
    Threads,
    Uri,
    command,
    dataset_slice,
    digest,
    job,
    read,
    state,
    store,
)
from difftransformer.provenance.fingerprint import job_fingerprint
from difftransformer.provenance.job import JobIdentity, reporting

if TYPE_CHECKING:
    from difftransformer.config.run import RunSlice

Trained = Annotated[Path, typer.Option(help="training.json; weights are written beside it.")]
Parent = Annotated[Path, typer.Option(help="training.json of the run that goes on.")]


@command
def initialise_tracking(
    output: Output, results: Root = Path("results"), tracking: Uri = "", log: Log = None
) -> None:
    """Create the tracking store and its experiments before any job writes to it."""
    from difftransformer.provenance.sync import initialise_tracking

    with reporting(log):
        initialise_tracking(store(tracking, results), output, results)


@command
def sync_tracking(
    results: Root = Path("results"),
    tracking: Uri = "",
    close: Annotated[
        bool, typer.Option("--close-stale", help="End our runs that stayed RUNNING without a job.")
    ] = False,
    log: Log = None,
) -> None:
    """Send everything that jobs tracked locally and could not send yet."""
    from difftransformer.provenance.sync import close_stale, sync_tracking

    with reporting(log):
        report = sync_tracking(results, store(tracking, results))
        if close:
            close_stale(results, store(tracking, results))
    if report.unsent:
        raise typer.Exit(1)


@command
def train_tokenizer(
    slice: Slice,
    output: Output,
    base: Annotated[str, typer.Option(help="tokenizer.json of the dataset's base, or ''.")] = "",
    log: Log = None,
) -> None:
    """Train, or resolve, the tokenizer of a dataset, or take over that of its base."""
    from difftransformer.data.tokenizer import train_tokenizer

    with reporting(log):
        train_tokenizer(dataset_slice(slice).config, output, Path(base) if base else None)


@command
def tokenise(
    slice: Slice,
    output: Output,
    code: Code = "",
    workers: Annotated[int, typer.Option(min=1, help="Processes that tokenise.")] = 1,
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Pack a corpus into memory-mapped shards with a manifest."""
    from difftransformer.data.tokenise import tokenise

    with reporting(log):
        config = dataset_slice(slice)
        folder = output.parent
        tokenizer = None if config.config.generated else folder / "tokenizer.json"
        inputs = digest(tokenizer)
    identity = JobIdentity(
        rule="tokenise",
        stage="tokenise",
        scale=config.scale,
        run=config.dataset,
        fingerprint=job_fingerprint("tokenise", config, code, inputs, None),
        threads=workers,
    )
    with job(identity, config, results, tracking, log) as running:
        tokenise(config.config, tokenizer, folder, state(results, identity), workers)
        running.tracker.log_artifact(output)


@command
def count_ngrams(slice: Slice, dataset: Dataset, output: Output, log: Log = None) -> None:
    """Find the n-grams that are too frequent in training for a suite."""
    from difftransformer.config.suites.validation_slices import ValidationSlices
    from difftransformer.data.ngrams import count_ngrams

    with reporting(log):
        suite = read(slice, ValidationSlices)
        count_ngrams(dataset.parent, output, suite.n, suite.max_count)


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
        from difftransformer.config.run import RunSlice
        from difftransformer.data.packed import PackedDataset
        from difftransformer.training.pretrain import pretrain

        config = read(slice, RunSlice)
        opened = PackedDataset.open(dataset.parent)
    identity = JobIdentity(
        rule="pretrain",
        stage="pretrain",
        scale=config.scale,
        run=config.run,
        seed=seed,
        fingerprint=job_fingerprint("pretrain", config, code, opened.digest, seed),
        threads=threads,
    )
    train = partial(pretrain, config, dataset=dataset.parent, seed=seed, threads=threads, code=code)
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

        config, identity = _continuation(
            "extend_context", slice, model.parent, dataset.parent, seed, threads, code
        )
    train = partial(extend_context, config, model=model.parent, dataset=dataset.parent)
    train = partial(train, seed=seed, threads=threads, code=code)
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

        config, identity = _continuation(
            "continue_training", slice, model.parent, dataset.parent, seed, threads, code
        )
    train = partial(
        continue_training, config, model=model.parent, dataset=dataset.parent, seed=seed
    )
    train = partial(train, threads=threads, code=code)
    _train(train, identity, config, output, results, tracking, log)


def _continuation(
    rule: str, slice: Path, model: Path, dataset: Path, seed: int, threads: int, code: str
) -> tuple["RunSlice", JobIdentity]:
    """Return the run that a training continues another one for, and which job that is."""
    from difftransformer.config.run import RunSlice
    from difftransformer.data.packed import PackedDataset
    from difftransformer.training.continuation import open_parent
    from difftransformer.training.upstream import training_inputs

    config = read(slice, RunSlice)
    opened = PackedDataset.open(dataset)
    parent = open_parent(config, model, opened, seed)
    inputs = training_inputs(opened, parent)
    return config, JobIdentity(
        rule=rule,
        stage=rule,
        scale=config.scale,
        run=config.run,
        seed=seed,
        fingerprint=job_fingerprint(rule, config, code, inputs, seed),
        upstream=(parent.job_id,),
        threads=threads,
    )


def _train(
    train: Callable[..., None],
    identity: JobIdentity,
    config: BaseModel,
    output: Path,
    results: Path,
    tracking: str,
    log: Path | None,
) -> None:
    """Frame a training as a tracked job, with its history and its result as artifacts."""
    with job(identity, config, results, tracking, log) as running:
        train(output=output.parent, state=state(results, identity), tracker=running.tracker)
        for name in ("history.csv", output.name):
            running.tracker.log_artifact(output.parent / name)


@command
def evaluate(
    slice: Slice,
    output: Output,
    model: Annotated[
        str, typer.Option(help="training.json of a finished run; '' for a model from elsewhere.")
    ] = "",
    dataset: Annotated[
        str, typer.Option(help="manifest.json of its dataset; '' for a model from elsewhere.")
    ] = "",
    ngrams: Annotated[str, typer.Option(help="Frequent n-grams, or '' for none.")] = "",
    seed: Seed = 0,
    threads: Threads = 1,
    code: Code = "",
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Evaluate one suite on a trained model, or on one from elsewhere that the slice names."""
    frequent = Path(ngrams) if ngrams else None
    trained = Path(model).parent if model else None
    packed = Path(dataset).parent if dataset else None
    with reporting(log):
        from difftransformer.config.evaluation import EvaluationSlice
        from difftransformer.data.packed import PackedDataset
        from difftransformer.evaluation.evaluate import evaluate
        from difftransformer.evaluation.identity import identify

        config = read(slice, EvaluationSlice)
        opened = PackedDataset.open(packed) if packed else None
        known = identify(
            config, model=trained, dataset=opened, ngrams=frequent, seed=seed, code=code
        )
    identity = JobIdentity(
        rule="evaluate",
        stage="evaluate",
        scale=config.scale,
        run=config.run,
        suite=config.suite,
        seed=seed,
        fingerprint=known.fingerprint,
        upstream=known.upstream,
        threads=threads,
    )
    with job(identity, config, results, tracking, log) as running:
        evaluate(
            config,
            model=trained,
            dataset=packed,
            ngrams=frequent,
            output=output,
            details=output.with_suffix(""),
            state=state(results, identity),
            seed=seed,
            threads=threads,
            tracker=running.tracker,
            code=code,
        )


@command
def measure_throughput(
    slice: Slice,
    output: Output,
    threads: Threads = 1,
    code: Code = "",
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Time training and forward passes of all rows of table 7 on this machine."""
    # torch reads this when it is imported; the profiler's C++ says when it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with reporting(log):
        from difftransformer.analysis.throughput import KIND, fingerprint, measure_throughput
        from difftransformer.config.throughput import ThroughputSlice

        config = read(slice, ThroughputSlice)
    identity = JobIdentity(
        rule="measure_throughput",
        stage=KIND,
        scale=config.scale,
        run=KIND,
        fingerprint=fingerprint(config, code),
        threads=threads,
    )
    with job(identity, config, results, tracking, log) as running:
        measure_throughput(
            config, output=output, threads=threads, tracker=running.tracker, code=code
        )


@command
def measure_decoding(
    slice: Slice,
    output: Output,
    threads: Threads = 1,
    code: Code = "",
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Time decoding with a KV cache of all rows of v2_decoding on this machine."""
    with reporting(log):
        from difftransformer.analysis.decoding import KIND, fingerprint, measure_decoding
        from difftransformer.config.decoding import DecodingSlice

        config = read(slice, DecodingSlice)
    identity = JobIdentity(
        rule="measure_decoding",
        stage=KIND,
        scale=config.scale,
        run=KIND,
        fingerprint=fingerprint(config, code),
        threads=threads,
    )
    with job(identity, config, results, tracking, log) as running:
        measure_decoding(config, output=output, threads=threads, tracker=running.tracker, code=code)
