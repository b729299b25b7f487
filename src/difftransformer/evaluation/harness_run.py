"""Calls of lm-eval's own evaluator, one task at a time, without its noise."""

import logging
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.api.model import LM
from lm_eval.api.task import Task

from difftransformer.config.suites.base import AVERAGE
from difftransformer.provenance.result import Number

_NOISY = ("lm_eval", "datasets", "transformers", "huggingface_hub", "math_verify", "latex2sympy2")


def quiet() -> None:
    """Let only errors of the harness and what it uses reach the log."""
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)


def ask(model: LM, task: Task, limit: int | None) -> dict[str, Any]:
    """Evaluate one task: the heart of `simple_evaluate`, which reads the environment every time."""
    found: dict[str, Any] = lm_eval.evaluate(
        lm=model,
        task_dict={"tasks": {task.task_name: task}, "groups": {}, "group_map": {}},
        limit=limit,
        log_samples=True,
    )
    return found


def average(tasks: Sequence[str], metrics: Mapping[str, Number], beside: str) -> dict[str, float]:
    """Unweighted means over tasks of the scores and of another metric, {task}_{beside}.

    Returns:
        average, average_stderr (tasks are independent) and average_{beside}.
    """

    def column(ending: str) -> list[float]:
        return [float(metrics[f"{task}{ending}"] or 0.0) for task in tasks]

    errors = column("_stderr")
    return {
        AVERAGE: math.fsum(column("")) / len(tasks),
        f"{AVERAGE}_stderr": math.sqrt(math.fsum(error**2 for error in errors)) / len(tasks),
        f"{AVERAGE}_{beside}": math.fsum(column(f"_{beside}")) / len(tasks),
    }


@contextmanager
def bars_for_people() -> Iterator[None]:
    """Keep progress bars off a stderr that nobody watches, such as a log."""
    if sys.stderr.isatty():
        yield
        return
    with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):
        yield
