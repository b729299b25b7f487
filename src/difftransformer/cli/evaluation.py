"""Subcommands of the rules that measure: evaluate a model, judge its answers, time models."""

import os
import shlex
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from difftransformer.cli.frame import (
    LOOK,
    Artifact,
    Code,
    Config,
    Log,
    Output,
    Root,
    Scale,
    Seed,
    Seeds,
    Slice,
    Threads,
    Uri,
    command,
    job,
    load_plan,
    people,
    read,
    state,
)
from difftransformer.config.yaml_files import as_settings
from difftransformer.errors import UserError
from difftransformer.provenance.job import JobIdentity
from difftransformer.provenance.reporting import reporting


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
    with reporting(log):
        from difftransformer.config.measurements import EvaluationSlice
        from difftransformer.data.packed import PackedDataset
        from difftransformer.evaluation.evaluate import evaluate
        from difftransformer.evaluation.identity import identify

        config = read(slice, EvaluationSlice)
        opened = PackedDataset.open(Path(dataset).parent) if dataset else None
        identity = identify(
            config,
            model=trained,
            dataset=opened,
            ngrams=frequent,
            seed=seed,
            threads=threads,
            code=code,
        )
    with job(identity, config, results, tracking, log) as running:
        evaluate(
            config,
            model=trained,
            dataset=opened,
            ngrams=frequent,
            output=output,
            details=output.with_suffix(""),
            state=state(results, identity),
            job=running,
        )


@command
def judge_answers(
    slice: Slice,
    answers: Annotated[
        Path, typer.Option(help="Result of the suite that generated them; they lie beside it.")
    ],
    kept: Annotated[Path, typer.Option(help="Folder of judgements that cost something.")],
    output: Output,
    seed: Seed = 0,
    code: Code = "",
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Judge the answers of one run, by a language model or by looking words up."""
    with reporting(log):
        from difftransformer.config.judges import JudgementSlice, judged_suite
        from difftransformer.config.measurements import measurement, module_of

        config = read(slice, JudgementSlice)
        # By name: its code is that of the measurement whose answers are judged.
        judge = import_module(module_of(measurement(config.kind).name, "judge"))
        judged = judge.open_answers(config, answers, seed)
    identity = JobIdentity(
        rule="judge_answers",
        stage=judge.STAGE,
        scale=config.scale,
        run=config.run,
        suite=judged_suite(config.suite, config.judge.kind),
        seed=seed,
        fingerprint=judge.judging_fingerprint(config, judged, seed, code),
        upstream=(judged.result.job_id,),
    )
    with job(identity, config, results, tracking, log) as running:
        judge.judge_answers(
            config,
            judged=judged,
            kept=kept,
            output=output,
            details=output.with_suffix(""),
            job=running,
        )


@people(LOOK)
def estimate_judging(
    artifact: Artifact, scale: Scale = None, seeds: Seeds = None, config: Config = Path("config")
) -> None:
    """Say what the endpoint would cost on the answers there are; no key, nothing is sent."""
    with reporting():
        from difftransformer.config.measurements import module_of

        # What `judge` asks for is no matter here, and the endpoint would need its key.
        plan = load_plan(config, scale, seeds=seeds, judge="lexical")
        kept, missing = Path(plan.jobs.layout.kept_judgements), 0
        plan.require(artifact, "estimate_judging")
        found = plan.artifacts.answer_folders(artifact)
        if not found:
            judged = filter(plan.artifacts.answer_folders, plan.artifacts.known)
            raise UserError(f"{artifact}: has nothing to judge; what has is {', '.join(judged)}")
        for kind, answers in found.items():
            judge, folders = import_module(module_of(kind, "judge")), [*map(Path, answers)]
            there, said = judge.estimate(plan.catalogue.project.judges.endpoint, folders, kept)
            typer.echo(said)
            missing += len(folders) - there
        if missing:
            given = shlex.join(as_settings({"scale": plan.catalogue.project.scale, "seeds": seeds}))
            typer.echo(
                f"{missing} runs have not answered yet: "
                f"`snakemake {artifact} --config {given}` makes them answer"
            )


@command
def benchmark(
    slice: Slice,
    output: Output,
    threads: Threads = 1,
    code: Code = "",
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Time all rows of a measurement on this machine."""
    # torch reads this when it is imported; the profiler's C++ says when it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with reporting(log):
        from difftransformer.config.measurements import TimedSlice
        from difftransformer.evaluation.timing_job import identify, measure_timings

        config = read(slice, TimedSlice)
        identity = identify(config, threads, code)
    with job(identity, config, results, tracking, log) as running:
        measure_timings(config, output=output, job=running)
