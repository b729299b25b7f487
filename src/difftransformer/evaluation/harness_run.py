"""Calls of lm-eval's own evaluator, one task at a time, without its noise."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.api.model import LM
from lm_eval.api.task import Task

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


@contextmanager
def bars_for_people() -> Iterator[None]:
    """Keep progress bars off a stderr that nobody watches, such as a log."""
    if sys.stderr.isatty():
        yield
        return
    with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):
        yield
