"""Use of lm-eval: models wrapped as its `HFLM`, and its evaluator run on one task."""

import json
import logging
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.task import Task
from lm_eval.models.huggingface import HFLM
from lm_eval.utils import handle_non_serializable
from transformers import AutoTokenizer

from difftransformer.config.evaluation import AVERAGE, Suite
from difftransformer.convert.hf import DiffTransformerForCausalLM
from difftransformer.convert.pretrained import load_hf_model_and_tokenizer
from difftransformer.data.packed import TOKENIZER
from difftransformer.errors import CheckpointError
from difftransformer.evaluation.context import EvalContext, PretrainedContext
from difftransformer.evaluation.item_files import split_lines
from difftransformer.evaluation.memory import require_memory_for_files
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.model_files import model_files
from difftransformer.provenance.result import Number, PerItemScores

_NOISY = ("lm_eval", "datasets", "transformers", "huggingface_hub", "math_verify", "latex2sympy2")
_Request = tuple[tuple[str, str], list[int], list[int]]


class TruncationCountingLM(HFLM):  # type: ignore[misc]
    """lm-eval's `HFLM`, with a count of the requests that are truncated to the model's context.

    lm-eval drops the first tokens of a long request with a warning, and fails for an answer that is
    longer than the context; this class also truncates such an answer.

    Attributes:
        requests: Requests so far.
        truncated: Requests that lost tokens.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.requests = self.truncated = 0
        super().__init__(*arguments, **options)
        self._require_token("bos_token", "eos_token")

    def _require_token(self, *names: str) -> None:
        """Check that the tokenizer has one of these tokens, which lm-eval puts around texts."""
        if all(getattr(self.tokenizer, f"{name}_id") is None for name in names):
            raise CheckpointError(
                f"{self.tokenizer.name_or_path}: its tokenizer has no {' or '.join(names)}, which "
                "lm_eval needs: name one in its tokenizer_config.json"
            )

    def _loglikelihood_tokens(
        self, requests: list[_Request], *arguments: Any, **options: Any
    ) -> list[tuple[float, bool]]:
        longest = self.max_length
        fitting = [(text, context, answer[-longest:]) for text, context, answer in requests]
        self.requests += len(requests)
        self.truncated += sum(
            len(context) + len(answer) > longest + 1 for _, context, answer in requests
        )
        scores: list[tuple[float, bool]] = super()._loglikelihood_tokens(
            fitting, *arguments, **options
        )
        return scores

    def generate_until(
        self, requests: list[Instance], *arguments: Any, **options: Any
    ) -> list[str]:
        """Return generated answers; count prompts that leave too little room for an answer."""
        self._require_token("eos_token")
        self.requests += len(requests)
        for request in requests:
            prompt, settings = request.args
            room = self.max_length - settings.get("max_gen_toks", self.max_gen_toks)
            self.truncated += len(self.tok_encode(prompt)) > room
        answers: list[str] = super().generate_until(requests, *arguments, **options)
        return answers


def wrap_for_lm_eval(
    suite: Suite, context: EvalContext | PretrainedContext
) -> TruncationCountingLM:
    """Return an evaluation's model as an lm-eval model, configured as by the `lm_eval` command.

    Raises:
        CheckpointError: The model or its tokenizer cannot be loaded, or the tokenizer has neither
            a token that begins a text nor one that ends it.
    """
    options: dict[str, Any] = {"batch_size": suite.batch_size}
    if suite.precision == "bf16":
        options["mixed_precision_dtype"] = "bfloat16"
    if isinstance(context, PretrainedContext):
        if files := model_files(context.model):
            require_memory_for_files(files, context.device, context.model.name)
        inner, tokenizer = load_hf_model_and_tokenizer(
            context.model, context.model.dtype, device_map={"": str(context.device)}
        )
        return TruncationCountingLM(pretrained=inner, tokenizer=tokenizer, **options)
    model, folder = context.scorer.model, context.dataset.folder
    if not (folder / TOKENIZER).is_file():
        raise CheckpointError(
            f"{folder}: has no {TOKENIZER}, so its models cannot be evaluated on text: use a run "
            "that is trained on text"
        )
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    wrapped = DiffTransformerForCausalLM.wrap(model, eos_token_id=tokenizer.eos_token_id)
    return TruncationCountingLM(pretrained=wrapped, tokenizer=tokenizer, **options)


def silence_lm_eval() -> None:
    """Silence the loggers of lm-eval and of the libraries it uses, except for errors."""
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)


def evaluate_task(
    model: LM, task: Task | Mapping[str, Any], limit: int | None, **options: Any
) -> dict[str, Any]:
    """Return lm-eval's results of one task, with every sample.

    ``task`` is a task or the mapping that `TaskManager.load` returns; ``limit`` is the number of
    items (None: all); ``options`` are passed on to `lm_eval.evaluate`. The latter is faster than
    `simple_evaluate`, which inspects the environment in every call.
    """
    if isinstance(task, Task):
        task = {"tasks": {task.task_name: task}, "groups": {}, "group_map": {}}
    results: dict[str, Any] = lm_eval.evaluate(
        lm=model, task_dict=task, limit=limit, log_samples=True, **options
    )
    return results


def standard_error(results: Mapping[str, Any], metric: str, filter: str) -> float | None:
    """Return lm-eval's standard error of a metric, or None if lm-eval reports "N/A" (one item)."""
    stderr: float | str = results[f"{metric}_stderr,{filter}"]
    return None if isinstance(stderr, str) else stderr


def macro_average(
    tasks: Sequence[str], metrics: Mapping[str, Number], second_metric: str
) -> dict[str, float | None]:
    """Return unweighted means over tasks: of their scores, and of one other metric of each task.

    A task's score is ``metrics[task]``, its other metric ``metrics[f"{task}_{second_metric}"]``.

    Returns:
        average, average_stderr (tasks are taken as independent) and average_{second_metric}; None
        if a task lacks the value.
    """

    def mean(ending: str, total: Callable[[list[float]], float] = math.fsum) -> float | None:
        values = [metrics[f"{task}{ending}"] for task in tasks]
        defined = [float(value) for value in values if value is not None]
        return total(defined) / len(tasks) if len(defined) == len(tasks) else None

    return {
        AVERAGE: mean(""),
        f"{AVERAGE}_stderr": mean("_stderr", lambda errors: math.hypot(*errors)),
        f"{AVERAGE}_{second_metric}": mean(f"_{second_metric}"),
    }


def mean_of_tasks(tasks: Iterable[PerItemScores]) -> PerItemScores:
    """Return the per-item scores of the unweighted mean over tasks."""
    scores = list(tasks)
    return PerItemScores.weighted_sum((1 / len(scores), task) for task in scores)


@contextmanager
def hide_progress_bars() -> Iterator[None]:
    """Context that discards stderr, and so progress bars, unless stderr is a terminal."""
    if sys.stderr.isatty():
        yield
        return
    with Path(os.devnull).open("w") as devnull, redirect_stderr(devnull):
        yield


class TaskCheckpoint:
    """Saved results of one finished lm-eval task, with which a killed evaluation resumes.

    The files in the evaluation's state folder are ``{name}.jsonl`` (every item) and ``{name}.json``
    (a summary).
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._items, self._summary = folder / f"{name}.jsonl", folder / f"{name}.json"

    @property
    def finished(self) -> bool:
        """Whether the task is finished, which its summary file shows: it is written last."""
        return self._summary.is_file()

    def save(self, items: Iterable[Any], summary: Mapping[str, Any]) -> None:
        """Write the task's items to its ``.jsonl`` file, then its summary to its ``.json`` file."""
        write_text(self._items, "".join(_json(item) + "\n" for item in items))
        write_text(self._summary, _json(summary, indent=1) + "\n")

    def copy_to(self, details: Path) -> dict[str, Any]:
        """Copy both files into an evaluation's details folder, and return the summary."""
        for path in (self._summary, self._items):
            shutil.copyfile(path, details / path.name)
        summary: dict[str, Any] = json.loads(self._summary.read_text(encoding="utf-8"))
        return summary

    def items(self) -> list[dict[str, Any]]:
        """Return the saved records of all items of the finished task."""
        lines = split_lines(self._items.read_text(encoding="utf-8"))
        return [json.loads(line) for line in lines if line]


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, default=handle_non_serializable, ensure_ascii=False, indent=indent)
