"""Subcommands of the judges of generated answers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from difftransformer.cli.frame import Code, Log, Output, Root, Seed, Slice, Uri, command, job, read
from difftransformer.cli.tools import Artifact, Config, Scale, Seeds
from difftransformer.provenance.job import JobIdentity, reporting

if TYPE_CHECKING:
    from difftransformer.planning.plan import Plan


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
        from difftransformer.evaluation.judge_answers import (
            STAGE,
            judge_answers,
            judging_fingerprint,
            open_answers,
        )

        config = read(slice, JudgementSlice)
        judged = open_answers(config, answers, seed)
    identity = JobIdentity(
        rule="judge_answers",
        stage=STAGE,
        scale=config.scale,
        run=config.run,
        suite=judged_suite(config.suite, config.judge.kind),
        seed=seed,
        fingerprint=judging_fingerprint(config, judged, seed, code),
        upstream=(judged.result.job_id,),
    )
    with job(identity, config, results, tracking, log) as running:
        judge_answers(
            config,
            judged=judged,
            kept=kept,
            output=output,
            details=output.with_suffix(""),
            job=running,
        )


@command
def estimate_judging(
    artifact: Artifact = "table4",
    scale: Scale = "tiny",
    seeds: Seeds = 1,
    config: Config = Path("config"),
) -> None:
    """Say what the endpoint would cost on the answers there are; no key, nothing is sent."""
    with reporting():
        from difftransformer.evaluation.answers import ANSWERS, Answer, read_answers
        from difftransformer.evaluation.judges.endpoint import Endpoint
        from difftransformer.planning.plan import Plan

        # What `judge` asks for is no matter here, and the endpoint would need its key.
        plan = Plan.load(config, {"scale": scale, "seeds": seeds, "judge": "lexical"})
        folders = _answer_folders(plan, artifact)
        there = [folder for folder in folders if (folder / ANSWERS).is_file()]
        answers: list[Answer] = [one for folder in there for one in read_answers(folder)]
        judge = Endpoint(plan.catalogue.project.judges.endpoint, Path(plan.layout.kept_judgements))
        typer.echo(f"{len(answers)} answers of {len(there)} runs: {judge.estimate(answers)}")
        if len(there) < len(folders):
            typer.echo(
                f"{len(folders) - len(there)} runs have not answered yet: "
                f"`snakemake {artifact} --config scale={scale} seeds={seeds}` makes them answer"
            )


def _answer_folders(plan: "Plan", artifact: str) -> list[Path]:
    from difftransformer.config.validation import lookup
    from difftransformer.errors import UserError

    lookup(plan.artifacts, artifact, "artifact", "estimate_judging")
    folders = [Path(folder) for folder in plan.answer_folders(artifact)]
    if not folders:
        raise UserError(f"{artifact}: has nothing to judge; table4 has")
    return folders
