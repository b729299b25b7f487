"""Subcommands of the rules that prepare data and train."""

import logging
import sys
from functools import partial
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    job,
    mirror,
    read,
    state,
)
from difftransformer.errors import DataError, data_of
from difftransformer.machine import gpus, slurm
from difftransformer.provenance.fingerprint import job_fingerprint
from difftransformer.provenance.job import JobIdentity, exclusive
from difftransformer.provenance.layout import HISTORY
from difftransformer.provenance.published import digest
from difftransformer.provenance.reporting import reporting
from difftransformer.provenance.spool import COPY, address_key
from difftransformer.provenance.tracking import NullTracker

if TYPE_CHECKING:
    from collections.abc import Callable


@command
def train_tokenizer(
    slice: Slice,
    output: Output,
    base: Annotated[str, typer.Option(help="tokenizer.json of the dataset's base, or ''.")] = "",
    log: Log = None,
) -> None:
    """Train, or resolve, the tokenizer of a dataset, or take over that of its base."""
    from difftransformer.config.run import DatasetSlice
    from difftransformer.data.tokenizer import train_tokenizer

    with reporting(log):
        config = read(slice, DatasetSlice)
        with data_of(config.dataset):
            train_tokenizer(config.config, output, Path(base) if base else None)


@command
def tokenize(
    slice: Slice,
    output: Output,
    tokenizer: Annotated[
        str, typer.Option(help="tokenizer.json of the dataset; '' for generated rows.")
    ] = "",
    corpus: Annotated[
        str, typer.Option(help="Listing of the user's files that are read; '' for none.")
    ] = "",
    code: Code = "",
    workers: Annotated[int, typer.Option(min=1, help="Processes that tokenize.")] = 1,
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Pack a corpus into memory-mapped shards with a manifest."""
    from difftransformer.config.run import DatasetSlice
    from difftransformer.data.tokenise import tokenise

    with reporting(log):
        config = read(slice, DatasetSlice)
        opened = Path(tokenizer) if tokenizer else None
        inputs = _digest(opened) + (digest(Path(corpus)) if corpus else "")
    identity = JobIdentity(
        rule="tokenize",
        stage="tokenize",
        scale=config.scale,
        run=config.dataset,
        fingerprint=job_fingerprint("tokenize", config, code, inputs, None),
        threads=workers,
    )
    with job(identity, config, results, tracking, log) as running:
        slurm.requeue_in_time()
        with data_of(config.dataset):
            tokenise(config.config, opened, output.parent, state(results, identity), workers)
        running.tracker.log_artifact(output)


def _digest(path: Path | None) -> str:
    """The sha256 of a tokenizer's file, or '' where there is none."""
    if path is None:
        return ""
    if not path.is_file():
        raise DataError(f"{path}: no such file; run train_tokenizer first")
    return digest(path)


@command
def count_ngrams(slice: Slice, dataset: Dataset, output: Output, log: Log = None) -> None:
    """Find the n-grams that are too frequent in training for a suite."""
    from difftransformer.config.measurement import Ngrams
    from difftransformer.data.ngrams import count_ngrams

    with reporting(log):
        asked = read(slice, Ngrams)
        count_ngrams(dataset.parent, output, asked.n, asked.max_count)


Trained = Annotated[
    Path, typer.Option("--output", help="training.json; weights are written beside it.")
]
FromScratch = Annotated[
    str,
    typer.Option(
        envvar="DIFFTRANSFORMER_FROM_SCRATCH",
        help="Train again though it had finished: a rule for all of its trainings, or files.",
    ),
]


Elsewhere = Annotated[
    str,
    typer.Option(
        "--state-url",
        envvar="DIFFTRANSFORMER_STATE",
        help="Folder or bucket (file:, s3:) that gets checkpoints, for another machine to go on.",
    ),
]
Parent = Annotated[
    str, typer.Option("--model", help="training.json of the run it starts from; '': from scratch.")
]


@command
def pretrain(
    slice: Slice,
    dataset: Dataset,
    output: Trained,
    model: Parent = "",
    seed: Seed = 0,
    threads: Threads = 1,
    code: Code = "",
    from_scratch: FromScratch = "",
    state_url: Elsewhere = "",
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Train a model, from scratch or from a finished run's weights; go on if stopped before."""
    with reporting(log):
        from difftransformer.training.pretrain import pretrain

        asked = _Asked("pretrain", slice, dataset, output, model, seed, threads, code, from_scratch)
    asked.carry_out(pretrain, results, state_url, tracking, log)


@command
def extend_context(
    slice: Slice,
    dataset: Dataset,
    output: Trained,
    model: Parent,
    seed: Seed = 0,
    threads: Threads = 1,
    code: Code = "",
    from_scratch: FromScratch = "",
    state_url: Elsewhere = "",
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Continue a finished run with longer positions; go on if stopped before."""
    with reporting(log):
        from difftransformer.training.pretrain import extend_context

        words = (slice, dataset, output, model, seed, threads, code, from_scratch)
        asked = _Asked("extend_context", *words)
    asked.carry_out(extend_context, results, state_url, tracking, log)


@command
def adapt(
    slice: Slice,
    dataset: Dataset,
    output: Trained,
    model: Parent,
    seed: Seed = 0,
    threads: Threads = 1,
    code: Code = "",
    from_scratch: FromScratch = "",
    state_url: Elsewhere = "",
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Adapt a finished run by Dex, LoRA or another method; go on if stopped before."""
    with reporting(log):
        from difftransformer.training.adapt import adapt

        asked = _Asked("adapt", slice, dataset, output, model, seed, threads, code, from_scratch)
    asked.carry_out(adapt, results, state_url, tracking, log)


class _Asked:
    """A training as the command line asks for it.

    Raises:
        UserError: Its settings, data or parent cannot be used.
    """

    def __init__(
        self,
        rule: str,
        slice: Path,
        dataset: Path,
        output: Path,
        model: str,
        seed: int,
        threads: int,
        code: str,
        from_scratch: str,
    ) -> None:
        from difftransformer.config.run import RunSlice
        from difftransformer.data.packed import PackedDataset
        from difftransformer.training.upstream import open_parent, training_inputs

        self.config = read(slice, RunSlice)
        self.dataset, self.output = dataset.parent, output
        self.model = Path(model).parent if model else None
        self.seed, self.threads, self.code = seed, threads, code
        forced = from_scratch.split()
        # Outputs in object storage lie here below a folder that stands for their bucket.
        folder, asked = (
            f"/{relpath(output.parent)}",
            (relpath(Path(file).parent) for file in forced),
        )
        self.from_scratch = rule in forced or any(folder.endswith(f"/{path}") for path in asked)
        opened = PackedDataset.open(self.dataset)
        parent = open_parent(self.config, self.model, opened, seed)
        inputs = training_inputs(opened, parent, self.config.pretrained)
        self.identity = JobIdentity(
            rule=rule,
            stage=rule,
            scale=self.config.scale,
            run=self.config.run,
            seed=seed,
            fingerprint=job_fingerprint(rule, self.config.decisive(), code, inputs, seed),
            upstream=() if parent is None else (parent.job_id,),
            threads=threads,
        )

    def carry_out(
        self,
        train: "Callable[..., None]",
        results: Path,
        state_url: str,
        tracking: str,
        log: Path | None,
    ) -> None:
        """Train as one job; one that Slurm stops before its time is over goes back to the queue."""
        from difftransformer.training.interrupt import Interrupted
        from difftransformer.training.joining import leads
        from difftransformer.training.launch import is_launched, launch

        world = self.config.training.world
        if world > 1 and not is_launched():
            with reporting(log, mode="a"):  # the process that leads begins it
                with exclusive(state(results, self.identity)):
                    pass  # a job that is left over ends first: else all but one lose patience
                on_gpus = self.config.training.device != "cpu" and bool(gpus.pool())
                status = launch(world, sys.argv[1:], on_gpus)
            raise SystemExit(status)
        try:
            self._train(train, results, state_url, tracking, log)
        except Interrupted as stop:
            if stop.signal == slurm.TIME_IS_NEARLY_OVER and leads():
                with reporting(log, mode="a"):
                    slurm.requeue()
            raise

    def _train(
        self,
        train: "Callable[..., None]",
        results: Path,
        state_url: str,
        tracking: str,
        log: Path | None,
    ) -> None:
        from difftransformer.training.joining import leads

        copy = mirror(state_url, self.identity)
        call = partial(
            train,
            self.config,
            model=self.model,
            dataset=self.dataset,
            output=self.output.parent,
            state=state(results, self.identity),
            mirror=copy,
            seed=self.seed,
            threads=self.threads,
            code=self.code,
            from_scratch=self.from_scratch,
        )
        if not leads():
            with reporting(level=logging.ERROR):
                call(tracker=NullTracker())
            return
        with job(self.identity, self.config, results, tracking, log) as running:
            if copy:
                running.tracker.set_tags({COPY: address_key(copy)})
            call(tracker=running.tracker)
            for name in (HISTORY, self.output.name):
                running.tracker.log_artifact(self.output.parent / name)
