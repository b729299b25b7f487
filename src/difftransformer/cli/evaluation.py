"""Subcommand of the rule that evaluates a model."""

from pathlib import Path
from typing import Annotated

import typer

from difftransformer.cli.frame import (
    Code,
    Log,
    Output,
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
from difftransformer.provenance.job import JobIdentity, reporting


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
