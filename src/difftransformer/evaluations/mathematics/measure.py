"""Accuracy and output length on mathematics sets, by lm-eval's evaluator.

Each set is one call of lm-eval, and finished sets are saved, so a killed job resumes with the next.
Intermediate checkpoints of the training run can be measured before its final weights. `math_verify`
bounds its time by signals, so answers are graded in the main thread, as lm-eval does.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import lm_eval
from datasets import Dataset
from lm_eval.api.task import ConfigurableTask
from math_verify import parse, verify

from difftransformer.config.evaluation import AVERAGE
from difftransformer.config.training import TrainingConfig
from difftransformer.convert.checkpoint import WEIGHTS, load_weights
from difftransformer.data.math_sets import MATH_SETS, PROMPT, Item, boxed
from difftransformer.evaluation.context import EvalContext, EvalResult, Metrics, per_item_scores
from difftransformer.evaluation.harness import (
    TaskCheckpoint,
    TruncationCountingLM,
    evaluate_task,
    hide_progress_bars,
    macro_average,
    mean_of_tasks,
    silence_lm_eval,
    standard_error,
    wrap_for_lm_eval,
)
from difftransformer.evaluations.mathematics.set_items import set_items
from difftransformer.evaluations.mathematics.settings import (
    Suite,
    checkpoint_suffix,
    intermediate_tokens,
    metric_name,
)
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.layout import TRAINING
from difftransformer.provenance.result import PerItemScores, read_result
from difftransformer.training.state_folder import intermediate_checkpoint

logger = logging.getLogger(__name__)

METRIC = "exact_match"
UNTIL = "Question:"
"""Stop string of an output, besides the end-of-document token."""


class ModelWeights(NamedTuple):
    """One set of a training run's weights: their file, and the suffix of their metrics."""

    suffix: str
    weights: Path

    def saved(self, context: EvalContext, name: str) -> TaskCheckpoint:
        """Return the checkpoint with the saved results of a mathematics set for these weights."""
        return TaskCheckpoint(context.state, f"{name}{self.suffix}")


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Return accuracies with lm-eval's standard errors, output lengths, and their means over sets.

    Every item with its prompt, output, parsed answer and grade is written to
    ``{set}{suffix}.jsonl`` in the details of ``context``.

    Returns:
        For each set: {set} (share of correct answers), {set}_stderr (None for one item),
        {set}_samples, {set}_tokens (mean output length in the model's tokens), {set}_reached_limit
        (share of outputs that reach max_new_tokens, mostly unfinished) and {set}_truncated (share
        of prompts too long for the context, which lose their first tokens). Over sets: average,
        average_stderr and average_tokens. Intermediate checkpoints add the same with suffix
        _t{tokens trained}. Accuracies and lengths have per-item scores.

    Raises:
        CheckpointError: Intermediate checkpoints or the tokenizer are missing.
        DataError: Items are missing or damaged, or the hub cannot be reached.
    """
    silence_lm_eval()
    context.state.mkdir(parents=True, exist_ok=True)
    weights = _weights_to_measure(suite, context)
    _measure_missing(suite, context, weights)
    metrics: Metrics = {}
    per_item: dict[str, PerItemScores] = {}
    for model_weights in weights:
        checkpoints = {name: model_weights.saved(context, name) for name in suite.tasks}
        set_metrics: Metrics = {}
        for task in checkpoints.values():
            set_metrics |= task.copy_to(context.details)
        set_metrics |= macro_average(suite.tasks, set_metrics, "tokens")
        metrics |= {f"{name}{model_weights.suffix}": value for name, value in set_metrics.items()}
        items = {name: task.items() for name, task in checkpoints.items()}
        for part, field in (("", "correct"), ("tokens", "tokens")):
            by_set = {
                name: per_item_scores("items", (item[field] for item in some), item_set=name)
                for name, some in items.items()
            }
            by_set[AVERAGE] = mean_of_tasks(by_set.values())
            per_item |= {
                f"{metric_name(name, part)}{model_weights.suffix}": task
                for name, task in by_set.items()
            }
    return EvalResult(metrics, per_item)


class Grade(NamedTuple):
    """The answer parsed from an output (None if there is none), and whether it is correct."""

    parsed: str | None
    correct: bool


def grade_answer(output: str, answer: str) -> Grade:
    r"""Return the grade of an output, compared with the published answer.

    The answer of an output is its last ``\boxed{}``, else the last formula or number that
    `math_verify` finds. Answers in words are correct if equal but for case and white space.
    """
    box = boxed(output)
    # math_verify would parse several boxes as a set.
    extracted = parse(output if box is None else rf"\boxed{{{box}}}")
    worded_answer = _worded_answer(output)
    gold = parse(answer if "$" in answer else f"${answer}$")
    equal_math = bool(gold and extracted and verify(gold, extracted))
    equal_words = worded_answer is not None and _normalized(worded_answer) == _normalized(answer)
    read = worded_answer if equal_words or not extracted else str(extracted[-1])
    return Grade(read, equal_math or equal_words)


def math_task(
    name: str, items: list[Item], suite: Suite, grades: dict[int, Grade]
) -> ConfigurableTask:
    """Return a zero-shot lm-eval task with a set's items.

    When lm-eval scores an output, the task stores its grade in ``grades`` by the item's index.
    """
    math_set = MATH_SETS[name]
    documents = [
        {"index": index, "question": math_set.question(item), "answer": math_set.answer(item)}
        for index, item in enumerate(items)
    ]

    def score(doc: Mapping[str, Any], results: list[str]) -> dict[str, float]:
        grades[doc["index"]] = grade = grade_answer(results[0], doc["answer"])
        return {METRIC: float(grade.correct)}

    return ConfigurableTask(
        config={
            "task": f"mathematics_{name}",
            "custom_dataset": lambda **_: {"test": Dataset.from_list(documents)},
            "test_split": "test",
            "doc_to_text": _prompt,
            "doc_to_target": "answer",
            "process_results": score,
            "metric_list": [{"metric": METRIC, "aggregation": "mean", "higher_is_better": True}],
            "generation_kwargs": {
                "until": [UNTIL], "max_gen_toks": suite.max_new_tokens, "do_sample": False
            },
            "num_fewshot": 0,
            "metadata": {"version": 1},
        }
    )  # fmt: skip


def _prompt(document: Mapping[str, Any]) -> str:
    return PROMPT.format(question=document["question"])


def _weights_to_measure(suite: Suite, context: EvalContext) -> list[ModelWeights]:
    """Return the weights to measure in the order of training, the final weights last."""
    folder = context.model
    assert folder is not None, "this suite needs the folder of the model"
    final = ModelWeights("", folder / WEIGHTS)
    if not suite.intermediate_checkpoints:
        return [final]
    training = TrainingConfig.model_validate(read_result(folder / TRAINING).settings["training"])
    intermediate = [
        ModelWeights(checkpoint_suffix(tokens), intermediate_checkpoint(folder, step))
        for step, tokens in zip(
            training.intermediate_steps, intermediate_tokens(training), strict=True
        )
    ]
    return [*intermediate, final]


def _measure_missing(suite: Suite, context: EvalContext, weights: list[ModelWeights]) -> None:
    """Measure the sets that have no saved results; a set's summary is written last."""
    todo = {
        model_weights: names
        for model_weights in weights
        if (
            names := [
                name for name in suite.tasks if not model_weights.saved(context, name).finished
            ]
        )
    }
    if not todo:
        return
    needed = {name for names in todo.values() for name in names}
    items = {
        name: set_items(name, suite.data, suite.limit) for name in suite.tasks if name in needed
    }
    model = wrap_for_lm_eval(suite, context)
    transformer = context.scorer.model
    assert isinstance(transformer, Transformer), type(transformer)
    for model_weights, names in todo.items():
        load_weights(transformer, model_weights.weights)
        for name in names:
            started = monotonic()
            grades = dict[int, Grade]()
            task = math_task(name, items[name], suite, grades)
            with hide_progress_bars():
                output = evaluate_task(model, task, None)
            records = [
                _record(model, grades, sample) for sample in output["samples"][task.task_name]
            ]
            summary = _summary(suite, name, records, output["results"][task.task_name], model)
            model_weights.saved(context, name).save(records, summary)
            seconds = monotonic() - started
            logger.info(
                "%s%s: %d items in %.1f s", name, model_weights.suffix, len(items[name]), seconds
            )


def _summary(
    suite: Suite,
    name: str,
    records: list[dict[str, Any]],
    results: dict[str, Any],
    model: TruncationCountingLM,
) -> Metrics:
    """Return the metrics of a set."""
    longest, count = model.max_length - suite.max_new_tokens, len(records)
    values = {
        "": results[f"{METRIC},none"],
        "stderr": standard_error(results, METRIC, "none"),
        "samples": count,
        "tokens": sum(record["tokens"] for record in records) / count,
        "reached_limit": sum(record["tokens"] >= suite.max_new_tokens for record in records)
        / count,
        "truncated": sum(record["prompt_tokens"] > longest for record in records) / count,
    }
    return {metric_name(name, part): value for part, value in values.items()}


def _record(
    model: TruncationCountingLM, grades: dict[int, Grade], sample: dict[str, Any]
) -> dict[str, Any]:
    document, output = sample["doc"], sample["filtered_resps"][0]
    prompt, grade = _prompt(document), grades[document["index"]]
    return {
        "item": document["index"],
        "prompt": prompt,
        "answer": document["answer"],
        "output": output,
        **grade._asdict(),
        "tokens": len(model.tok_encode(output)),
        "prompt_tokens": len(model.tok_encode(prompt)),
        "lm_eval": lm_eval.__version__,
    }


def _worded_answer(output: str) -> str | None:
    """Return the answer in a box or behind the last `answer is`, or None."""
    answer = boxed(output)
    if answer is None and "answer is" in output:
        answer = output.rpartition("answer is")[2].partition("\n")[0]
    return None if answer is None else answer.strip(" :$.")


def _normalized(text: str) -> str:
    return " ".join(text.strip(" $.").casefold().split())
