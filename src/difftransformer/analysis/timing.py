"""Timing things beside each other, and counting the memory that one of them takes."""

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

import torch

from difftransformer.models.memory import cuda_peak

Key = TypeVar("Key")
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}
"""Seconds of the wall, and those that this process computed in all of its threads."""


class Spread(NamedTuple):
    """Median and quartiles."""

    median: float
    q1: float
    q3: float


def take_turns(
    steps: Mapping[Key, Callable[[], object]],
    *,
    warmup: int,
    repeats: int,
    clock: Clock = time.perf_counter,
    device: torch.device | None = None,
) -> dict[Key, list[float]]:
    """Time steps round by round, one turn each, so that what disturbs them disturbs all alike.

    Args:
        steps: What is timed, by name. The order is drawn anew for each round, the same for every
            call, and none follows itself: it would find the processor's caches filled for it. Two
            alternate.
        warmup: Untimed rounds before.
        repeats: Timed rounds.
        clock: Seconds, of the wall or of the process.
        device: Where the steps compute; on CUDA a step ends when the device has done it.

    Returns:
        Seconds of each step, round by round.
    """
    seconds: dict[Key, list[float]] = {name: [] for name in steps}
    for turn, order in enumerate(islice(_orders(list(steps)), warmup + repeats)):
        for name in order:
            _wait(device)
            started = clock()
            steps[name]()
            _wait(device)
            if turn >= warmup:
                seconds[name].append(clock() - started)
    return seconds


def _orders(names: list[Key]) -> Iterator[list[Key]]:
    """Yield random orders, none of which begins with the last of the one before."""
    draw = random.Random(0)
    while True:
        last = names[-1]
        draw.shuffle(names)
        while len(names) > 1 and names[0] == last:
            draw.shuffle(names)
        yield names


def spread(values: Sequence[float]) -> Spread:
    """Return median and quartiles of two values or more."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


def peak_memory(step: Callable[[], object], device: torch.device) -> int:
    """Bytes that a step allocates on top of what is there before it, at their highest.

    Tensors alone: on the CPU counted from the allocator's events of one profiled step, which are
    the same every time, unlike the size of a process, of which small models are a small part.
    """
    if device.type == "cuda":
        return cuda_peak(step, device)
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    assert profiler.profiler is not None
    kineto = profiler.profiler.kineto_results
    assert kineto is not None
    events = [event for event in kineto.events() if event.name() == "[memory]"]
    used = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        used += event.nbytes()
        peak = max(peak, used)
    return peak


def _wait(device: torch.device | None) -> None:
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
