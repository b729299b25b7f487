"""Everything once, by many processes: compilers fill their caches, and a clock finds them full.

On a card nearly all of a call is compiling, one core at a time. Answers that no clock decides are
kept: those about whether numbers are right. Each question has a process, which can lose the card.

    python benchmarks/gpu/ahead.py SCRIPT QUESTION    # one of them, by `all.py --processes`
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import import_module
from pathlib import Path

import runs

COUNTED = ("contract", "variants")
"""Scripts whose answers are the same whatever else the card does."""
ROUNDS = 2


def compile_ahead(scripts: Sequence[str], arguments: argparse.Namespace) -> None:
    """Ask what has no answer yet in ``--processes`` processes; say what fails."""
    setting, started = runs.Setting(arguments.device, ROUNDS), time.monotonic()
    tasks = []
    for script in scripts:
        module = import_module(script)
        if left := runs.unanswered(script, module.questions(setting), arguments):
            apart = _tasks(script, setting)
            tasks += [(script, name) for name in (left if apart is None else apart)]
    # What is kept comes first; of the others the longest, which begun last would end last.
    tasks.sort(key=lambda task: (task[0] not in COUNTED, -runs.seconds_of(task[0])))
    begun = 0
    with ThreadPoolExecutor(arguments.processes) as pool:
        futures = {pool.submit(_in_a_process, *task, arguments): task for task in tasks}
        try:
            for done in as_completed(futures):
                script, name = futures[done]
                if (found := done.result()) is None:
                    continue
                begun += 1
                if script in COUNTED or found.keys() & {"failed", "out_of_memory"}:
                    print(script, name, json.dumps(found), flush=True)
        except KeyboardInterrupt:  # those at work have heard it, too
            pool.shutdown(cancel_futures=True)
            raise
    took = f"{time.monotonic() - started:.0f} s"
    print(f"{begun} of {len(tasks)} asked ahead in {took}", flush=True)


def _tasks(script: str, setting: runs.Setting) -> runs.Questions | None:
    """What of a script can be compiled apart, where that is not its questions."""
    ask = getattr(import_module(script), "ahead", None)
    return None if ask is None else ask(setting)


def _in_a_process(script: str, name: str, arguments: argparse.Namespace) -> runs.Answer | None:
    """The answer of a process of its own; None where there was no time for it."""
    left = arguments.ends - time.monotonic()
    if left < 0:
        return None
    command = [sys.executable, __file__, script, name, arguments.device, str(arguments.records)]
    cores = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}  # each process has one
    try:
        ended = subprocess.run(
            command,
            env=os.environ | cores,
            capture_output=True,
            text=True,
            check=False,
            timeout=None if math.isinf(left) else left,
        )
    except subprocess.TimeoutExpired:
        return None
    try:
        found: runs.Answer = json.loads(ended.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        said = (ended.stderr.strip() or "nothing").splitlines()[-1]
        return {"failed": f"ended with {ended.returncode}: {said}"}
    return found


def main(script: str, name: str, device: str, records: str) -> None:
    """Ask one question; the last line is its answer, without the spread of times."""
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    setting = runs.Setting(device, ROUNDS)
    asks = _tasks(script, setting) or import_module(script).questions(setting)
    line = runs.asked(script, name, asks[name], setting)
    found = line["answer"]
    # What other processes may be the cause of is asked again, alone.
    if script in COUNTED and not runs.failed(found) and "out_of_memory" not in found:
        runs.record(Path(records), line)
    print(json.dumps(runs.finite(runs.short(found))))


if __name__ == "__main__":
    main(*sys.argv[1:])
