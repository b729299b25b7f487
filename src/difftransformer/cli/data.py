"""Subcommands of the rules that prepare data."""

from pathlib import Path
from typing import Annotated

import typer

from difftransformer.cli.frame import (
    Code,
    Dataset,
    Log,
    Output,
    Root,
    Slice,
    Uri,
    command,
    dataset_slice,
    digest,
    job,
    read,
    state,
)
from difftransformer.provenance.fingerprint import job_fingerprint
from difftransformer.provenance.job import JobIdentity, reporting


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
