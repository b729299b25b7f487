"""One judge on the answers of one run: judge, count, write the result; and what it would cost."""

import hashlib
import logging
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from difftransformer.config.judges import EndpointJudge, JudgmentSlice, judge_module
from difftransformer.errors import ConfigError
from difftransformer.evaluation.subject import Measured, Metrics, means
from difftransformer.evaluations.hallucination.answers import (
    ANSWERS,
    JUDGMENTS,
    Answer,
    Judgment,
    read_answers,
    write_lines,
)
from difftransformer.evaluations.hallucination.settings import (
    TASKS,
    Suite,
    Task,
    average_metric,
    set_metric,
)
from difftransformer.provenance.published import require_published
from difftransformer.provenance.result import Result, Units, read_result
from difftransformer.tracking.run_context import Job

logger = logging.getLogger(__name__)


class Judged(NamedTuple):
    """What a judging job reads: the result of the generation, and what it generated."""

    result: Result
    answers: list[Answer]
    sha256: str


def open_answers(slice: JudgmentSlice, path: Path, seed: int) -> Judged:
    """Read the answers behind a result of the suite.

    Raises:
        DataError: The result or the answers are missing or damaged.
        ConfigError: It is the result of another run, suite or seed.
    """
    result = read_result(path)
    if (result.run, result.suite, result.seed) != (slice.run, slice.suite, seed):
        raise ConfigError(
            f"{path}: is of suite {result.suite} on run {result.run}, seed {result.seed}; asked "
            f"for {slice.suite} on {slice.run}, seed {seed}"
        )
    folder = path.with_suffix("")
    require_published(folder / ANSWERS, path)
    answers = read_answers(folder)
    return Judged(result, answers, hashlib.sha256((folder / ANSWERS).read_bytes()).hexdigest())


def judge_answers(
    slice: JudgmentSlice, *, judged: Judged, kept: Path, output: Path, details: Path, job: Job
) -> None:
    """Judge every answer and write the result file, whole or not at all.

    Args:
        slice: The resolved judge, and the run it is for.
        judged: The answers, from `open_answers`.
        kept: Folder of judgments that cost something, shared by all jobs and scales.
        output: JSON file of the result, see `difftransformer.provenance.result`. For each set:
            free_{set}, the share of judged answers that are free of hallucination (None if none
            was judged), judged_{set}, unjudged_{set}, contradicted_{set} and invented_{set} where
            the judge can tell; average_{task} and average, unweighted means of free_{set} over the
            sets that have one; unjudged in all; and the tokens that an endpoint counted. Shares and
            means are known by document, too.
        details: Folder that gets judgments.jsonl; emptied, and there afterwards.
        job: The running job.

    Raises:
        UserError: One line: what is missing, or why the judge cannot be reached.
    """
    shutil.rmtree(details, ignore_errors=True)
    details.mkdir(parents=True)
    # The module of the judge is loaded by name, so that its imports are its own.
    module = import_module(judge_module(slice.kind, slice.judge.kind))
    judgments = module.open_judge(slice.judge, kept).judge(judged.answers)
    write_lines(details / JUDGMENTS, judgments)
    config = judged.result.settings["config"]
    metrics, units = counts(Suite.model_validate(config).set_tasks, judged.answers, judgments)
    settings = {
        "judge": slice.judge.model_dump(mode="json"),
        "config": config,
        "upstream": [judged.result.job_id],
    }
    beside = [details / JUDGMENTS]
    job.write_result(output, "judgment", metrics, settings, beside, units=units)
    logger.info(
        "%s by %s of %s seed %d: free of hallucination %s, %d unjudged",
        slice.suite,
        slice.judge.kind,
        slice.run,
        judged.result.seed,
        "n/a" if metrics["average"] is None else f"{metrics['average']:.3f}",
        metrics["unjudged"],
    )


def counts(
    tasks: Mapping[str, Task], answers: Sequence[Answer], judgments: Sequence[Judgment]
) -> Measured:
    """Counts and shares by set, and their averages; see `judge_answers`."""
    metrics: Metrics = {}
    units = {}
    same: dict[tuple[str, ...], str] = {}
    for name in tasks:
        found = [one for one in judgments if one.set == name]
        judged = [one for one in found if one.free is not None]
        causes = Counter(one.cause for one in judged)
        free = sum(bool(one.free) for one in judged)
        counted = {
            "free": free / len(judged) if judged else None,
            "judged": len(judged),
            "unjudged": len(found) - len(judged),
            "contradicted": causes["contradicted"],
            "invented": causes["invented"],
        }
        metrics |= {set_metric(kind, name): value for kind, value in counted.items()}
        if not found:
            continue  # there is nothing to ask about
        documents = tuple(one.document for one in answers if one.set == name)
        units[set_metric("free", name)] = means(
            "documents",
            [bool(one.free) for one in found],
            [one.free is not None for one in found] if judged else None,
            of=same.setdefault(documents, name),  # sets may ask for more than one thing about each
        )
    groups = {"average": list(tasks)} | {
        average_metric(task): [name for name in tasks if tasks[name] == task] for task in TASKS
    }
    for label, names in groups.items():
        found_shares = {name: metrics[set_metric("free", name)] for name in names}
        shares = [share for share in found_shares.values() if share is not None]
        metrics[label] = sum(shares) / len(shares) if shares else None
        if shares:
            units[label] = Units.summed(
                (0.0 if share is None else 1 / len(shares), known)
                for name, share in found_shares.items()
                if (known := units.get(set_metric("free", name))) is not None
            )
    metrics["unjudged"] = sum(one.free is None for one in judgments)
    for name in ("prompt_tokens", "completion_tokens"):
        metrics[f"judge_{name}"] = sum(one.usage.get(name, 0) for one in judgments)
    return Measured(metrics, units)


def estimate(config: EndpointJudge, folders: Sequence[Path], kept: Path) -> tuple[int, str]:
    """Say how many runs have answered, and what the endpoint would take for their answers.

    Args:
        config: The endpoint; it is sent nothing, and needs no key.
        folders: Where runs leave their answers.
        kept: Folder of judgments that cost something.
    """
    there = [folder for folder in folders if (folder / ANSWERS).is_file()]
    answers = [one for folder in there for one in read_answers(folder)]
    # By name as in `judge_answers`: it is no part of other judges' code.
    judge = import_module(judge_module("hallucination", config.kind)).open_judge(config, kept)
    return len(there), f"{len(answers)} answers of {len(there)} runs: {judge.estimate(answers)}"
