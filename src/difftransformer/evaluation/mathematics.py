"""Accuracy and length of output on sets of mathematics, by lm-eval's own evaluator.

Each set is one call of it, and each finished one is kept, so a killed job goes on with the next.
Where training kept weights on its way, all of them can be measured, the final ones last.
"""

import json
import logging
import shutil
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import lm_eval

from difftransformer.config.suites.mathematics import Mathematics
from difftransformer.config.training import TrainingConfig
from difftransformer.errors import CheckpointError
from difftransformer.evaluation.harness_model import CountingLM, language_model
from difftransformer.evaluation.harness_run import ask, average, bars_for_people, quiet
from difftransformer.evaluation.math_items import set_items
from difftransformer.evaluation.math_task import METRIC, MathTask
from difftransformer.evaluation.subject import Metrics, Subject
from difftransformer.models.checkpoint import WEIGHTS, load_weights
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.result import TRAINING, read_result
from difftransformer.training.checkpoint import KEPT, kept_name

logger = logging.getLogger(__name__)


class Point(NamedTuple):
    """Weights of a training: the ending of their metrics, and their file."""

    ending: str
    weights: Path


def measure(suite: Mathematics, subject: Subject) -> Metrics:
    """Accuracies with lm-eval's standard errors, their unweighted mean, and lengths of output.

    Args:
        suite: Sets, items, prompt and room for an output.
        subject: The model. ``details`` gets ``{set}{ending}.jsonl``, every item with its prompt,
            output, the answer read from it and the verdict.

    Returns:
        For each set: {set} (share of right answers), {set}_stderr, {set}_samples, {set}_tokens
        (mean length of the output in tokens of the model's tokenizer), {set}_filled (share of
        outputs that fill their room, mostly unfinished) and {set}_cut (share of prompts too long
        for the context, which lose their first tokens). Over sets: average, average_stderr and
        average_tokens. With kept weights the same for each of them, ending in _t{tokens trained}.

    Raises:
        CheckpointError: Kept weights are missing, or the model's tokenizer cannot be loaded.
        DataError: Items are missing or damaged, or the hub cannot be reached.
    """
    quiet()
    subject.state.mkdir(parents=True, exist_ok=True)
    points = _points(suite, subject)
    _evaluate(suite, subject, points)
    metrics: Metrics = {}
    for point in points:
        found: Metrics = {}
        for name in suite.tasks:
            for path in (_summary(subject, name, point), _samples(subject, name, point)):
                shutil.copyfile(path, subject.details / path.name)
            found |= json.loads(_summary(subject, name, point).read_text(encoding="utf-8"))
        found |= average(suite.tasks, found, "tokens")
        metrics |= {f"{name}{point.ending}": value for name, value in found.items()}
    return metrics


def _points(suite: Mathematics, subject: Subject) -> list[Point]:
    """Return the weights to measure, in the order of training; the final ones have no ending."""
    folder = subject.model
    assert folder is not None, "this suite needs the folder of the model"
    final = Point("", folder / WEIGHTS)
    if not suite.kept_weights:
        return [final]
    trained = read_result(folder / TRAINING)
    training = TrainingConfig.model_validate(trained.settings["training"])
    kept = [
        Point(f"_t{step * training.tokens_per_step}", folder / KEPT / kept_name(step))
        for step in training.kept_steps
    ]
    for point in kept:
        if not point.weights.is_file():
            raise CheckpointError(f"{point.weights}: no such file; train run {trained.run} again")
    return [*kept, final]


def _evaluate(suite: Mathematics, subject: Subject, points: list[Point]) -> None:
    """Measure what is not measured yet; the summary of a set is written last."""
    todo = {
        point: names
        for point in points
        if (names := [name for name in suite.tasks if not _summary(subject, name, point).is_file()])
    }
    if not todo:
        return
    wanted = {name for names in todo.values() for name in names}
    items = {name: set_items(name, suite) for name in suite.tasks if name in wanted}
    model = language_model(suite, subject)
    ours = subject.scorer.model
    assert isinstance(ours, Transformer), type(ours)
    for point, names in todo.items():
        load_weights(ours, point.weights)
        for name in names:
            started = monotonic()
            task = MathTask(name, items[name], suite)
            with bars_for_people():
                found = ask(model, task, None)
            _keep(suite, subject, model, task, name, point, found)
            seconds = monotonic() - started
            logger.info("%s%s: %d items in %.1f s", name, point.ending, len(items[name]), seconds)


def _keep(
    suite: Mathematics, subject: Subject, model: CountingLM, task: MathTask, name: str,
    point: Point, found: dict[str, Any],
) -> None:  # fmt: skip
    """Write the items, then the summary that marks the set as measured."""
    lines = [_line(model, task, sample) for sample in found["samples"][task.task_name]]
    longest = model.max_length - suite.max_new_tokens
    results = found["results"][task.task_name]
    count = len(lines)
    write_text(
        _samples(subject, name, point),
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines),
    )
    summary = {
        name: results[f"{METRIC},none"],
        f"{name}_stderr": results[f"{METRIC}_stderr,none"],
        f"{name}_samples": count,
        f"{name}_tokens": sum(line["tokens"] for line in lines) / count,
        f"{name}_filled": sum(line["tokens"] >= suite.max_new_tokens for line in lines) / count,
        f"{name}_cut": sum(line["prompt_tokens"] > longest for line in lines) / count,
    }
    write_text(_summary(subject, name, point), json.dumps(summary, indent=1) + "\n")


def _line(model: CountingLM, task: MathTask, sample: dict[str, Any]) -> dict[str, Any]:
    document, output = sample["doc"], sample["filtered_resps"][0]
    prompt = task.doc_to_text(document)
    verdict = task.verdicts[document["index"]]
    return {
        "item": document["index"],
        "prompt": prompt,
        "answer": document["answer"],
        "output": output,
        "parsed": verdict.parsed,
        "correct": verdict.correct,
        "tokens": len(model.tok_encode(output)),
        "prompt_tokens": len(model.tok_encode(prompt)),
        "lm_eval": lm_eval.__version__,
    }


def _summary(subject: Subject, name: str, point: Point) -> Path:
    return subject.state / f"{name}{point.ending}.json"


def _samples(subject: Subject, name: str, point: Point) -> Path:
    return subject.state / f"{name}{point.ending}.jsonl"
