"""`difftransformer step RULE`: the command that every rule of the workflow runs."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from difftransformer.cli import evaluation, reports, training
from difftransformer.cli.command_group import MAINTAIN, command
from difftransformer.cli.step import Files, Step
from difftransformer.config.validation import validate
from difftransformer.errors import lookup
from difftransformer.provenance.command_errors import report_errors

MAX_THREADS = 1024
RULES: dict[str, Callable[[Step], None]] = {
    "train_tokenizer": training.train_tokenizer,
    "tokenize": training.tokenize,
    "count_ngrams": training.count_ngrams,
    "pretrain": training.train,
    "extend_context": training.train,
    "adapt": training.train,
    "evaluate": evaluation.evaluate,
    "judge_answers": evaluation.judge_answers,
    "benchmark": evaluation.benchmark,
    "table": reports.build,
    "figure": reports.build,
    "verdicts": reports.verdicts,
    "report": reports.report,
}
"""Rule -> function that runs a job of the rule."""


@command("step", MAINTAIN, hidden=True)
def step(
    rule: Annotated[str, typer.Argument(help=", ".join(RULES) + ".")],
    job_config: Annotated[
        Path, typer.Option(help="JSON of the resolved configuration; the workflow writes it.")
    ],
    files: Annotated[
        str,
        typer.Option(
            help='JSON of the files by name: {"inputs": {"model": [...]}, "outputs": {"result": '
            '[...]}, "seed": 0, "results": "results"}; default: standard input.'
        ),
    ] = "",
    code: Annotated[str, typer.Option(help="Fingerprint of the code; part of the job's id.")] = "",
    threads: Annotated[
        int, typer.Option(min=1, max=MAX_THREADS, help="Threads per operation.")
    ] = 1,
    log: Annotated[Path | None, typer.Option(help="File that gets the log beside stderr.")] = None,
) -> None:
    """Run one job of the workflow; `snakemake --printshellcmds` prints these calls."""
    with report_errors(log):
        run_rule = lookup(RULES, rule, "rule", "step")
        paths = validate(Files, (files or sys.stdin.read()).encode(), "step: --files")
    run_rule(Step(rule, job_config, paths, code, threads, log))
