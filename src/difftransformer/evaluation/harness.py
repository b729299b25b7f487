"""lm-eval as evaluations call it: models, and its own evaluator of one task, without its noise.

Models are its own `HFLM`, around one of ours or one from elsewhere.
"""

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
from difftransformer.evaluation.item_files import written_lines
from difftransformer.evaluation.memory import require_memory_for_files
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.model_files import model_files
from difftransformer.provenance.result import Number, PerItemScores

_NOISY = ("lm_eval", "datasets", "transformers", "huggingface_hub", "math_verify", "latex2sympy2")
_Request = tuple[tuple[str, str], list[int], list[int]]


class TruncationCountingLM(HFLM):  # type: ignore[misc]
    """`HFLM` that counts the requests whose beginning does not fit into the context.

    lm-eval drops the first tokens of those and only warns, and stops at an answer that is longer
    than the whole context; here such an answer loses its first tokens as well, and is counted.

    Attributes:
        requests: Requests so far.
        cut: Those of them that lost tokens.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.requests = self.cut = 0
        super().__init__(*arguments, **options)
        self._require_token("bos_token", "eos_token")

    def _require_token(self, *names: str) -> None:
        """Check that the tokenizer names one of these: lm-eval begins and ends texts with them."""
        if all(getattr(self.tokenizer, f"{name}_id") is None for name in names):
            raise CheckpointError(
                f"{self.tokenizer.name_or_path}: its tokenizer names no {' or '.join(names)}, as "
                "lm_eval needs: name one in its tokenizer_config.json"
            )

    def _loglikelihood_tokens(
        self, requests: list[_Request], *arguments: Any, **options: Any
    ) -> list[tuple[float, bool]]:
        longest = self.max_length
        fitting = [(text, context, answer[-longest:]) for text, context, answer in requests]
        self.requests += len(requests)
        self.cut += sum(len(context) + len(answer) > longest + 1 for _, context, answer in requests)
        found: list[tuple[float, bool]] = super()._loglikelihood_tokens(
            fitting, *arguments, **options
        )
        return found

    def generate_until(
        self, requests: list[Instance], *arguments: Any, **options: Any
    ) -> list[str]:
        """Answers in words; a prompt that leaves no room for its answer is counted."""
        self._require_token("eos_token")
        self.requests += len(requests)
        for one in requests:
            prompt, settings = one.args
            room = self.max_length - settings.get("max_gen_toks", self.max_gen_toks)
            self.cut += len(self.tok_encode(prompt)) > room
        found: list[str] = super().generate_until(requests, *arguments, **options)
        return found


def language_model(suite: Suite, context: EvalContext | PretrainedContext) -> TruncationCountingLM:
    """Wrap a model as the `lm_eval` command would.

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
        there = {"device_map": {"": str(context.device)}}
        inner, tokenizer = load_hf_model_and_tokenizer(context.model, context.model.dtype, **there)
        return TruncationCountingLM(pretrained=inner, tokenizer=tokenizer, **options)
    model, folder = context.scorer.model, context.dataset.folder
    if not (folder / TOKENIZER).is_file():
        raise CheckpointError(
            f"{folder}: has no {TOKENIZER}, so its models cannot be asked in words: evaluate a "
            "run that is trained on text"
        )
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    face = DiffTransformerForCausalLM.wrap(model, eos_token_id=tokenizer.eos_token_id)
    return TruncationCountingLM(pretrained=face, tokenizer=tokenizer, **options)


def quiet() -> None:
    """Let only errors of the harness and what it uses reach the log."""
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)


def ask(
    model: LM, task: Task | Mapping[str, Any], limit: int | None, **options: Any
) -> dict[str, Any]:
    """Evaluate one task: the heart of `simple_evaluate`, which reads the environment every time.

    A mapping is what `TaskManager.load` returns; ``options`` are those of `lm_eval.evaluate`.
    """
    if isinstance(task, Task):
        task = {"tasks": {task.task_name: task}, "groups": {}, "group_map": {}}
    found: dict[str, Any] = lm_eval.evaluate(
        lm=model, task_dict=task, limit=limit, log_samples=True, **options
    )
    return found


def standard_error(results: Mapping[str, Any], metric: str, filter: str) -> float | None:
    """Return lm-eval's standard error of a metric; None of one item, where it says N/A."""
    found: float | str = results[f"{metric}_stderr,{filter}"]
    return None if isinstance(found, str) else found


def average(
    tasks: Sequence[str], metrics: Mapping[str, Number], beside: str
) -> dict[str, float | None]:
    """Unweighted means over tasks of the scores and of another metric, {task}_{beside}.

    Returns:
        average, average_stderr (tasks are independent) and average_{beside}; None where a task has
        none.
    """

    def mean(ending: str, total: Callable[[list[float]], float] = math.fsum) -> float | None:
        found = [metrics[f"{task}{ending}"] for task in tasks]
        known = [float(one) for one in found if one is not None]
        return total(known) / len(tasks) if len(known) == len(tasks) else None

    return {
        AVERAGE: mean(""),
        f"{AVERAGE}_stderr": mean("_stderr", lambda errors: math.hypot(*errors)),
        f"{AVERAGE}_{beside}": mean(f"_{beside}"),
    }


def mean_over(tasks: Iterable[PerItemScores]) -> PerItemScores:
    """Describe the unweighted mean over tasks."""
    known = list(tasks)
    return PerItemScores.weighted_sum((1 / len(known), one) for one in known)


@contextmanager
def hide_progress_bars() -> Iterator[None]:
    """Keep progress bars off a stderr that nobody watches, such as a log."""
    if sys.stderr.isatty():
        yield
        return
    with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):
        yield


class TaskCheckpoint:
    """One task in a folder that outlives a killed job, which goes on with the next.

    Its files are ``{name}.jsonl``, every item, and ``{name}.json``, a summary.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._items, self._summary = folder / f"{name}.jsonl", folder / f"{name}.json"

    @property
    def finished(self) -> bool:
        """Whether it is measured: its summary is written last."""
        return self._summary.is_file()

    def keep(self, items: Iterable[Any], summary: Mapping[str, Any]) -> None:
        """Write the items, then the summary."""
        write_text(self._items, "".join(_json(item) + "\n" for item in items))
        write_text(self._summary, _json(summary, indent=1) + "\n")

    def hand_over(self, details: Path) -> dict[str, Any]:
        """Copy the files into the details of the job, and return the summary."""
        for path in (self._summary, self._items):
            shutil.copyfile(path, details / path.name)
        summary: dict[str, Any] = json.loads(self._summary.read_text(encoding="utf-8"))
        return summary

    def items(self) -> list[dict[str, Any]]:
        """Return every item of a finished task."""
        lines = written_lines(self._items.read_text(encoding="utf-8"))
        return [json.loads(line) for line in lines if line]


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, default=handle_non_serializable, ensure_ascii=False, indent=indent)
