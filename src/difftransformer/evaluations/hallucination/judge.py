"""Judge the stored answers of one run, aggregate the judgments, and estimate the cost of an API."""

import hashlib
import logging
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from difftransformer.config.judges import EndpointJudge, JudgmentConfig, judge_module
from difftransformer.errors import ConfigError
from difftransformer.evaluation.context import EvalResult, Metrics, per_item_scores
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
from difftransformer.provenance.checksums import verify_file
from difftransformer.provenance.result import PerItemScores, Result, read_result
from difftransformer.tracking.run_context import Job

logger = logging.getLogger(__name__)


class GeneratedAnswers(NamedTuple):
    """The result of generating answers, the answers, and the SHA-256 of their file."""

    result: Result
    answers: list[Answer]
    sha256: str


def open_answers(config: JudgmentConfig, path: Path, seed: int) -> GeneratedAnswers:
    """Return the generated answers of a run and seed, and the result they belong to.

    ``path`` is the result file; the answers are in its details folder.

    Raises:
        DataError: The result or the answers are missing or damaged.
        ConfigError: The result belongs to another run, suite or seed.
    """
    result = read_result(path)
    if (result.run, result.suite, result.seed) != (config.run, config.suite, seed):
        raise ConfigError(
            f"{path}: is of suite {result.suite} on run {result.run}, seed {result.seed}; "
            f"expected {config.suite} on {config.run}, seed {seed}"
        )
    folder = path.with_suffix("")
    verify_file(folder / ANSWERS, path)
    digest = hashlib.sha256((folder / ANSWERS).read_bytes()).hexdigest()
    return GeneratedAnswers(result, read_answers(folder), digest)


def judge_answers(
    config: JudgmentConfig,
    *,
    generated: GeneratedAnswers,
    cache_folder: Path,
    output: Path,
    details: Path,
    job: Job,
) -> None:
    """Judge every generated answer of a run, and write the result file.

    Args:
        config: The resolved judge, and the run whose answers it judges.
        generated: The answers, from `open_answers`.
        cache_folder: Folder of paid judgments, shared by all jobs and scales.
        output: JSON file of the result, see `difftransformer.provenance.result`; its metrics are
            computed by `aggregate`.
        details: Folder to write judgments.jsonl to; it is emptied first.
        job: The running job.

    Raises:
        UserError: A setting or file of the judge is missing, or its endpoint cannot be reached.
    """
    shutil.rmtree(details, ignore_errors=True)
    details.mkdir(parents=True)
    # Loaded by name, so that the code fingerprint of one judge excludes the other judges.
    module = import_module(judge_module(config.kind, config.judge.kind))
    judgments = module.open_judge(config.judge, cache_folder).judge(generated.answers)
    write_lines(details / JUDGMENTS, judgments)
    suite = generated.result.settings["config"]
    metrics, per_item = aggregate(
        Suite.model_validate(suite).set_tasks, generated.answers, judgments
    )
    settings = {
        "judge": config.judge.model_dump(mode="json"),
        "config": suite,
        "upstream": [generated.result.job_id],
    }
    files = [details / JUDGMENTS]
    job.write_result(output, "judgment", metrics, settings, files, per_item=per_item)
    logger.info(
        "%s by %s of %s seed %d: free of hallucination %s, %d unjudged",
        config.suite,
        config.judge.kind,
        config.run,
        generated.result.seed,
        "n/a" if metrics["average"] is None else f"{metrics['average']:.3f}",
        metrics["unjudged"],
    )


def aggregate(
    tasks: Mapping[str, Task], answers: Sequence[Answer], judgments: Sequence[Judgment]
) -> EvalResult:
    """Return metrics of judgments: shares of faithful answers by set, their averages, and counts.

    Returns:
        For each set faithful_{set}, the share of judged answers that are free of hallucination
        (None if none was judged), judged_{set}, unjudged_{set}, contradicted_{set} and
        unsupported_{set} where the judge can tell. average_{task} and average are unweighted means
        of faithful_{set} over the sets that have one. unjudged counts over all sets;
        judge_prompt_tokens and judge_completion_tokens are as an endpoint counts them. Shares and
        means have per-item scores by document.
    """
    metrics: Metrics = {}
    per_item = {}
    first_set: dict[tuple[str, ...], str] = {}  # with the same documents: they are one sample
    for name in tasks:
        in_set = [judgment for judgment in judgments if judgment.set == name]
        judged = [judgment for judgment in in_set if judgment.faithful is not None]
        causes = Counter(judgment.cause for judgment in judged)
        faithful = sum(bool(judgment.faithful) for judgment in judged)
        values = {
            "faithful": faithful / len(judged) if judged else None,
            "judged": len(judged),
            "unjudged": len(in_set) - len(judged),
            "contradicted": causes["contradicted"],
            "unsupported": causes["unsupported"],
        }
        metrics |= {set_metric(kind, name): value for kind, value in values.items()}
        if not in_set:
            continue  # the set has no documents
        documents = tuple(answer.document for answer in answers if answer.set == name)
        per_item[set_metric("faithful", name)] = per_item_scores(
            "documents",
            [bool(judgment.faithful) for judgment in in_set],
            [judgment.faithful is not None for judgment in in_set] if judged else None,
            item_set=first_set.setdefault(documents, name),
        )
    groups = {"average": list(tasks)} | {
        average_metric(task): [name for name in tasks if tasks[name] == task] for task in TASKS
    }
    for label, names in groups.items():
        share_by_set = {name: metrics[set_metric("faithful", name)] for name in names}
        shares = [share for share in share_by_set.values() if share is not None]
        metrics[label] = sum(shares) / len(shares) if shares else None
        if shares:
            per_item[label] = PerItemScores.weighted_sum(
                (0.0 if share is None else 1 / len(shares), set_units)
                for name, share in share_by_set.items()
                if (set_units := per_item.get(set_metric("faithful", name))) is not None
            )
    metrics["unjudged"] = sum(judgment.faithful is None for judgment in judgments)
    for name in ("prompt_tokens", "completion_tokens"):
        metrics[f"judge_{name}"] = sum(judgment.usage.get(name, 0) for judgment in judgments)
    return EvalResult(metrics, per_item)


def estimate(config: EndpointJudge, folders: Sequence[Path], cache_folder: Path) -> tuple[int, str]:
    """Return the number of runs with answers, and a text with the endpoint's cost of judging them.

    Args:
        config: Settings of the endpoint; nothing is sent to it, and no key is needed.
        folders: Details folders with the runs' answers.
        cache_folder: Folder of paid judgments.
    """
    answered = [folder for folder in folders if (folder / ANSWERS).is_file()]
    answers = [answer for folder in answered for answer in read_answers(folder)]
    module = import_module(judge_module("hallucination", config.kind))  # as in `judge_answers`
    cost = module.open_judge(config, cache_folder).estimate(answers)
    return len(answered), f"{len(answers)} answers of {len(answered)} runs: {cost}"
