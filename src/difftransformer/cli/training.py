"""Subcommand of the rule that trains."""

from os.path import relpath
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
Afresh = Annotated[
    str,
    typer.Option(
        envvar="DIFFTRANSFORMER_AFRESH",
        help="Train again though it had finished: 'pretrain' for all, or files that it makes.",
    ),
]


@command
def pretrain(
    slice: Slice,
    dataset: Dataset,
    output: Trained,
    model: Annotated[
        str, typer.Option(help="training.json of the run it continues; '' starts from scratch.")
    ] = "",
    seed: Seed = 0,
    threads: Threads = 1,
    code: Code = "",
    afresh: Afresh = "",
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Train a model, from scratch or from a finished run's weights; go on if stopped before."""
    parent = Path(model).parent if model else None
    with reporting(log):
        from difftransformer.config.run import RunSlice
        from difftransformer.training.pretrain import pretrain

        config = read(slice, RunSlice)
        identity = _identify(config, dataset.parent, parent, seed, threads, code)
    with job(identity, config, results, tracking, log) as running:
        pretrain(
            config,
            model=parent,
            dataset=dataset.parent,
            output=output.parent,
            state=state(results, identity),
            seed=seed,
            threads=threads,
            tracker=running.tracker,
            code=code,
            afresh="pretrain" in (asked := afresh.split())
            or relpath(output.parent) in {relpath(Path(file).parent) for file in asked},
        )
        for name in ("history.csv", output.name):
            running.tracker.log_artifact(output.parent / name)


def _identify(
    config: "RunSlice", dataset: Path, model: Path | None, seed: int, threads: int, code: str
) -> JobIdentity:
    """Return which job trains a run; ``model`` is the folder of the one it continues."""
    from difftransformer.data.packed import PackedDataset
    from difftransformer.training.upstream import open_parent, training_inputs

    opened = PackedDataset.open(dataset)
    parent = open_parent(config, model, opened, seed)
    inputs = training_inputs(opened, parent)
    return JobIdentity(
        rule="pretrain",
        stage="pretrain",
        scale=config.scale,
        run=config.run,
        seed=seed,
        fingerprint=job_fingerprint("pretrain", config, code, inputs, seed),
        upstream=() if parent is None else (parent.job_id,),
        threads=threads,
    )
