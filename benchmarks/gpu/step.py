"""A whole training step of 135M parameters, compiled: what DIFF costs beside a Transformer.

To reach: at most 1.02 times the Transformer's time at 1K, 1.10 at 8K, and a share of the peak of
the Transformer of 45%.
"""

import statistics
from collections.abc import Callable
from functools import partial

from models import backends, build, config, share_of_peak, tokens, training_step
from runs import Answer, Questions, Setting, compared, main, timed

LENGTHS = (1024, 8192)
TOKENS = 32768
ROWS = ("transformer", "diff_v1")
BASE = "transformer sdpa"


def questions(setting: Setting) -> Questions:
    """One for each length."""
    return {f"T {T}": partial(measure, setting, T) for T in setting.sized(LENGTHS, (24,))}


def ahead(setting: Setting) -> Questions:
    """Each model by itself."""
    return each(setting, once)


def each(setting: Setting, ask: Callable[[Setting, str, str, int], Answer]) -> Questions:
    """One question for each length, row and backend."""
    return {
        f"T {T} {row} {one}": partial(ask, setting, row, one, T)
        for T in setting.sized(LENGTHS, (24,))
        for row in ROWS
        for one in backends(setting, row)
    }


def once(setting: Setting, row: str, backend: str, T: int) -> Answer:
    """One step."""
    model, batch = build(setting, row, backend, T), tokens(setting, T, TOKENS)
    training_step(setting, model, batch, compiled=not setting.tiny)()
    return {}


def measure(setting: Setting, T: int) -> Answer:
    """Both rows by all backends take turns."""
    batch = tokens(setting, T, TOKENS)
    turns = [(row, one) for row in ROWS for one in backends(setting, row)]
    steps = {
        f"{row} {backend}": training_step(
            setting, build(setting, row, backend, T), batch, compiled=not setting.tiny
        )
        for row, backend in turns
    }
    seconds = timed(steps, setting)
    speeds = {
        name: batch[:, 1:].numel() / statistics.median(values) for name, values in seconds.items()
    }
    shares = {
        name: share_of_peak(setting, config(setting, name.split()[0], T), T, one)
        for name, one in speeds.items()
    }
    return {
        **compared(seconds, BASE),
        "tokens_per_second": speeds,
        "share_of_peak": shares,
        "batch": len(batch),
    }


if __name__ == "__main__":
    main("step", __doc__, questions)
