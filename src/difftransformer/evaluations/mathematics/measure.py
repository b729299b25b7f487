"""Accuracy and length of output on sets of mathematics, by lm-eval's own evaluator.

Each set is one call of it, and each finished one is kept, so a killed job goes on with the next.
Where training kept weights on its way, all of them can be measured, the final ones last. Answers
are compared by `math_verify`, which bounds its time by signals, so they are judged in the main
thread, where lm-eval does it.
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
    ending_of,
    kept_tokens,
    metric_of,
)
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.layout import TRAINING
from difftransformer.provenance.result import PerItemScores, read_result
from difftransformer.training.state_folder import intermediate_checkpoint

logger = logging.getLogger(__name__)

METRIC = "exact_match"
UNTIL = "Question:"
"""Ends an output, as the end of the document does."""


class Point(NamedTuple):
    """Weights of a training: the ending of their metrics, and their file."""

    ending: str
    weights: Path

    def kept(self, context: EvalContext, name: str) -> TaskCheckpoint:
        """What is kept of a set with these weights."""
        return TaskCheckpoint(context.state, f"{name}{self.ending}")


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Accuracies with lm-eval's standard errors, their unweighted mean, and lengths of output.

    The details of ``context`` get ``{set}{ending}.jsonl``, every item with its prompt, output, the
    answer read from it and the verdict.

    Returns:
        For each set: {set} (share of right answers), {set}_stderr (None of one item),
        {set}_samples, {set}_tokens (mean length of the output in tokens of the model's tokenizer),
        {set}_reached_limit (share of outputs that reach max_new_tokens, mostly unfinished) and
        {set}_truncated (share of prompts too long for the context, which lose their first tokens).
        Over sets: average,
        average_stderr and average_tokens. With kept weights the same for each of them, ending in
        _t{tokens trained}, before those of the final ones. Accuracies and lengths are known by
        item, too.

    Raises:
        CheckpointError: Kept weights are missing, or the model's tokenizer cannot be loaded.
        DataError: Items are missing or damaged, or the hub cannot be reached.
    """
    silence_lm_eval()
    context.state.mkdir(parents=True, exist_ok=True)
    points = _points(suite, context)
    _evaluate(suite, context, points)
    metrics: Metrics = {}
    per_item: dict[str, PerItemScores] = {}
    for point in points:
        kept = {name: point.kept(context, name) for name in suite.tasks}
        found: Metrics = {}
        for one in kept.values():
            found |= one.copy_to(context.details)
        found |= macro_average(suite.tasks, found, "tokens")
        metrics |= {f"{name}{point.ending}": value for name, value in found.items()}
        items = {name: one.items() for name, one in kept.items()}
        for part, field in (("", "correct"), ("tokens", "tokens")):
            by_set = {
                name: per_item_scores("items", (item[field] for item in some), item_set=name)
                for name, some in items.items()
            }
            by_set[AVERAGE] = mean_of_tasks(by_set.values())
            per_item |= {
                f"{metric_of(name, part)}{point.ending}": one for name, one in by_set.items()
            }
    return EvalResult(metrics, per_item)


class Verdict(NamedTuple):
    """What became of an output: the answer read from it, None without one, and if it is right."""

    parsed: str | None
    correct: bool


def judge(output: str, answer: str) -> Verdict:
    r"""Compare an output with the published answer.

    The answer of an output is what its last ``\boxed{}`` holds, else the last formula or number
    that `math_verify` finds. Answers in words, which it cannot read, are right if they are the same
    text but for case and white space.
    """
    box = boxed(output)
    # Of several boxes math_verify would make one set.
    found = parse(output if box is None else rf"\boxed{{{box}}}")
    words = _words(output)
    gold = parse(answer if "$" in answer else f"${answer}$")
    right = bool(gold and found and verify(gold, found))
    same = words is not None and _folded(words) == _folded(answer)
    read = words if same or not found else str(found[-1])
    return Verdict(read, right or same)


def math_task(
    name: str, items: list[Item], suite: Suite, verdicts: dict[int, Verdict]
) -> ConfigurableTask:
    """Make a task of lm-eval of the items of a set, each asked without solved examples.

    ``verdicts`` gets what became of each output, by item, once lm-eval has it judged.
    """
    known = MATH_SETS[name]
    documents = [
        {"index": index, "question": known.question(item), "answer": known.answer(item)}
        for index, item in enumerate(items)
    ]

    def score(doc: Mapping[str, Any], results: list[str]) -> dict[str, float]:
        verdicts[doc["index"]] = verdict = judge(results[0], doc["answer"])
        return {METRIC: float(verdict.correct)}

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


def _points(suite: Suite, context: EvalContext) -> list[Point]:
    """Return the weights to measure, in the order of training; the final ones have no ending."""
    folder = context.model
    assert folder is not None, "this suite needs the folder of the model"
    final = Point("", folder / WEIGHTS)
    if not suite.intermediate_checkpoints:
        return [final]
    training = TrainingConfig.model_validate(read_result(folder / TRAINING).settings["training"])
    kept = [
        Point(ending_of(tokens), intermediate_checkpoint(folder, step))
        for step, tokens in zip(training.intermediate_steps, kept_tokens(training), strict=True)
    ]
    return [*kept, final]


def _evaluate(suite: Suite, context: EvalContext, points: list[Point]) -> None:
    """Measure what is not measured yet; the summary of a set is written last."""
    todo = {
        point: names
        for point in points
        if (names := [name for name in suite.tasks if not point.kept(context, name).finished])
    }
    if not todo:
        return
    wanted = {name for names in todo.values() for name in names}
    items = {
        name: set_items(name, suite.data, suite.limit) for name in suite.tasks if name in wanted
    }
    model = wrap_for_lm_eval(suite, context)
    ours = context.scorer.model
    assert isinstance(ours, Transformer), type(ours)
    for point, names in todo.items():
        load_weights(ours, point.weights)
        for name in names:
            started = monotonic()
            verdicts = dict[int, Verdict]()
            task = math_task(name, items[name], suite, verdicts)
            with hide_progress_bars():
                found = evaluate_task(model, task, None)
            lines = [_line(model, verdicts, one) for one in found["samples"][task.task_name]]
            summary = _summary(suite, name, lines, found["results"][task.task_name], model)
            point.kept(context, name).save(lines, summary)
            seconds = monotonic() - started
            logger.info("%s%s: %d items in %.1f s", name, point.ending, len(items[name]), seconds)


def _summary(
    suite: Suite,
    name: str,
    lines: list[dict[str, Any]],
    results: dict[str, Any],
    model: TruncationCountingLM,
) -> Metrics:
    """Metrics of a set."""
    longest, count = model.max_length - suite.max_new_tokens, len(lines)
    values = {
        "": results[f"{METRIC},none"],
        "stderr": standard_error(results, METRIC, "none"),
        "samples": count,
        "tokens": sum(line["tokens"] for line in lines) / count,
        "reached_limit": sum(line["tokens"] >= suite.max_new_tokens for line in lines) / count,
        "truncated": sum(line["prompt_tokens"] > longest for line in lines) / count,
    }
    return {metric_of(name, part): value for part, value in values.items()}


def _line(
    model: TruncationCountingLM, verdicts: dict[int, Verdict], sample: dict[str, Any]
) -> dict[str, Any]:
    document, output = sample["doc"], sample["filtered_resps"][0]
    prompt, verdict = _prompt(document), verdicts[document["index"]]
    return {
        "item": document["index"],
        "prompt": prompt,
        "answer": document["answer"],
        "output": output,
        **verdict._asdict(),
        "tokens": len(model.tok_encode(output)),
        "prompt_tokens": len(model.tok_encode(prompt)),
        "lm_eval": lm_eval.__version__,
    }


def _words(output: str) -> str | None:
    """What an output presents as its answer: in a box, or behind the last `answer is`."""
    found = boxed(output)
    if found is None and "answer is" in output:
        found = output.rpartition("answer is")[2].partition("\n")[0]
    return None if found is None else found.strip(" :$.")


def _folded(text: str) -> str:
    return " ".join(text.strip(" $.").casefold().split())
