"""Everything once, by many processes: compilers fill their caches, and a clock finds them full.

On a card nearly all of a call is compiling, one core at a time. Answers that no clock decides are
kept: those about whether numbers are right.
"""

import argparse
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module

import runs

COUNTED = ("contract", "variants")
"""Scripts whose answers are the same whatever else the card does."""
ROUNDS = 2


def compile_ahead(scripts: Sequence[str], arguments: argparse.Namespace) -> None:
    """Ask what has no answer yet in ``--processes`` processes; say what fails."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # each process has a core
    setting, started = runs.Setting(arguments.device, ROUNDS), time.monotonic()
    tasks = [(script, name) for script in scripts for name in _left(script, setting, arguments)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.processes, mp_context=context) as pool:
        futures = {pool.submit(_ask, *task, arguments): task for task in tasks}
        for done in as_completed(futures):
            script, name = futures[done]
            try:
                found = done.result()
            except Exception as error:  # the process is gone
                found = runs.failure(error)
            if script in COUNTED or "failed" in found:
                print(script, name, runs.short(found), flush=True)
    print(f"{len(tasks)} asked ahead in {time.monotonic() - started:.0f} s", flush=True)


def _left(script: str, setting: runs.Setting, arguments: argparse.Namespace) -> list[str]:
    module = import_module(script)
    path = arguments.records / f"{script}.jsonl"
    answered = runs.answered(path, runs.surroundings(setting))
    ask = module.questions if script in COUNTED else getattr(module, "ahead", module.questions)
    return [name for name in ask(setting) if name not in answered]


_lost = False


def _ask(script: str, name: str, arguments: argparse.Namespace) -> runs.Answer:
    global _lost  # noqa: PLW0603  # one process, one context of the card
    if _lost or time.monotonic() > arguments.ends:
        return {}
    module, setting = import_module(script), runs.Setting(arguments.device, ROUNDS)
    counted = script in COUNTED
    ask = module.questions if counted else getattr(module, "ahead", module.questions)
    path = arguments.records / f"{script}.jsonl"
    found = runs.asked(script, name, ask(setting)[name], setting, path if counted else None)
    _lost = runs.lost(found)
    return found
