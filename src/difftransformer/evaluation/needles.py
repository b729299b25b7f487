"""Multi-needle retrieval: accuracy by needles, context length and depth, through lm-eval.

Prompts depend on the suite and the dataset alone, so all runs answer the same questions. Beside the
numbers stand every sample (samples.jsonl) and what sharing prefixes saved (prefix_sharing.json).
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import Any

from lm_eval.evaluator import evaluate

from difftransformer.config.suites.needles import Needles
from difftransformer.evaluation.needle_prompts import Cell, open_builder
from difftransformer.evaluation.needle_task import (
    NeedleTask,
    SharingModel,
    answered,
)
from difftransformer.evaluation.prefix_sharing import Generator, Request
from difftransformer.evaluation.scorer import Scorer
from difftransformer.evaluation.subject import Metrics, Subject
from difftransformer.provenance.atomic import write_text

Counts = dict[Cell, tuple[int, int]]
"""Right answers and all answers of every cell."""


def measure(suite: Needles, subject: Subject) -> Metrics:
    """Accuracies with the counts behind them.

    Args:
        suite: Settings [N, R], lengths, depths, samples.
        subject: The model and its dataset.

    Returns:
        accuracy_, correct_ and asked_ of every setting n{N}_r{R}, of each of its depths (_d{D})
        and, with more than one length, of each length (_l{L}) and its depths (_l{L}_d{D}): the
        share of needles asked for that were answered. computed_positions of given_positions tells
        how many prompt positions were computed and how many the prompts have.

    Raises:
        ConfigError: The prompts do not fit the model or its dataset.
        DataError: Held-out text or the tokenizer is missing.
    """
    builder = open_builder(
        suite,
        subject.dataset,
        most_needles=suite.most_needles,
        max_positions=subject.scorer.max_positions,
        new_tokens=suite.max_new_tokens,
    )
    tasks = {
        cell: NeedleTask(cell, (builder.prompt(cell, i) for i in range(suite.samples)), builder)
        for cell in _cells(suite)
    }
    model = SharingModel(Generator(subject.scorer, suite.chunk), builder)
    named = {task.task_name: task for task in tasks.values()}
    found = evaluate(model, {"tasks": named, "groups": {}}, bootstrap_iters=0)
    samples = {cell: found["samples"][task.task_name] for cell, task in tasks.items()}
    lines = [line for cell, some in samples.items() for line in _lines(cell, some)]
    write_text(subject.details / "samples.jsonl", "".join(json.dumps(x) + "\n" for x in lines))
    requests = [model.request(one) for task in tasks.values() for one in task.instances]
    speed = _speed(suite, subject.scorer, requests)
    positions = {
        "computed_positions": model.generator.computed,
        "given_positions": model.generator.given,
    }
    # Seconds are no two times the same: what compares builds leaves out provenance.
    saved = positions | {"provenance": speed}
    write_text(subject.details / "prefix_sharing.json", json.dumps(saved, indent=2))
    counts = {cell: _count(some) for cell, some in samples.items()}
    return {**_metrics(suite, counts), **positions}


def _cells(suite: Needles) -> Iterator[Cell]:
    for needles, asked in suite.pairs:
        for length in suite.contexts:
            for depth in suite.depths:
                yield Cell(needles, asked, length, depth)


def _count(samples: Iterable[dict[str, Any]]) -> tuple[int, int]:
    found = [right for one in samples for right in answered(one["doc"], one["filtered_resps"])]
    return sum(found), len(found)


def _metrics(suite: Needles, counts: Counts) -> Metrics:
    """Accuracies over all cells that a name stands for; its parts name what is held fixed."""
    groups: dict[str, list[Cell]] = {}
    several = len(suite.contexts) > 1
    for cell in counts:
        setting, depth = f"n{cell.needles}_r{cell.asked}", f"_d{cell.depth}"
        length = f"_l{cell.length}"
        names = [setting, setting + depth]
        if several:
            names += [setting + length, setting + length + depth]
        for name in names:
            groups.setdefault(name, []).append(cell)
    metrics: Metrics = {}
    for name, cells in groups.items():
        correct, asked = (sum(counts[cell][part] for cell in cells) for part in (0, 1))
        metrics[f"accuracy_{name}"] = correct / asked
        metrics[f"correct_{name}"] = correct
        metrics[f"asked_{name}"] = asked
    return metrics


def _lines(cell: Cell, samples: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One record for each generation."""
    for one in samples:
        answers = one["doc"]["answers"]
        for (prompt, _), wanted, text in zip(
            one["arguments"], answers, one["filtered_resps"], strict=True
        ):
            yield {
                **cell._asdict(),
                "sample": one["doc_id"],
                "prompt_sha256": hashlib.sha256(prompt.encode()).hexdigest(),
                "answer": text,
                "target": wanted,
                "correct": [number in text for number in wanted],
            }


def _speed(suite: Needles, scorer: Scorer, requests: list[Request]) -> dict[str, float | int]:
    """Time some neighbouring prompts with shared prefixes and without."""
    ordered = sorted(requests, key=lambda one: one.prompt)
    start = max(0, (len(ordered) - suite.timed_prompts) // 2)
    some = ordered[start : start + suite.timed_prompts]
    if not some:
        return {}
    seconds = {}
    for name, share in (("shared_seconds", True), ("naive_seconds", False)):
        begun = perf_counter()
        Generator(scorer, suite.chunk, share).generate(some)
        seconds[name] = perf_counter() - begun
    speed_up = seconds["naive_seconds"] / seconds["shared_seconds"]
    return {"timed_prompts": len(some), **seconds, "speed_up": speed_up}
