"""Timing models beside each other on this machine: turns, clocks, and memory.

Every row, backend and mode of a shape has one turn in each round, so that a machine with other
work to do disturbs all alike; ratios are taken within a round. Models hold random weights and read
random tokens: neither changes the time.
"""

import logging
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple, TypeVar

import torch

from difftransformer.config.timing import BatchConfig, Timing
from difftransformer.evaluation.subject import Metrics

logger = logging.getLogger(__name__)

Key = TypeVar("Key")
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}
"""Seconds of the wall, and those that this process computed in all of its threads."""


class Turn(NamedTuple):
    """One thing that is timed at a shape."""

    row: str
    backend: str
    mode: str


def time_shape(
    shape: str,
    call: BatchConfig,
    steps: Mapping[Turn, Callable[[], object]],
    config: Timing,
    device: torch.device,
    process: int,
) -> Metrics:
    """Time all that has a turn at a shape; a step computes the tokens of one call.

    The orders of the turns are those of the process, by its number among those that take rounds.

    Returns:
        seconds/{shape}/{row}/{backend}/{mode}/{round}; tokens_per_second/{shape}/{row}/{backend}/
        {mode}, median over the rounds of this process.
    """
    seconds = take_turns(
        steps,
        warmup=config.warmup,
        repeats=config.repeats,
        clock=CLOCKS[config.clock],
        device=device,
        seed=process,
    )
    metrics: Metrics = {}
    for turn, taken in seconds.items():
        place = "/".join((shape, *turn))
        metrics |= {f"seconds/{place}/{number}": one for number, one in enumerate(taken)}
        speed = call.batch_size * call.seq_len / statistics.median(taken)
        metrics[f"tokens_per_second/{place}"] = speed
        logger.info("%s: %.4g tokens/s", place, speed)
    return metrics


def take_turns(
    steps: Mapping[Key, Callable[[], object]],
    *,
    warmup: int,
    repeats: int,
    clock: Clock = time.perf_counter,
    device: torch.device | None = None,
    seed: int = 0,
) -> dict[Key, list[float]]:
    """Time steps round by round, one turn each, so that what disturbs them disturbs all alike.

    Args:
        steps: What is timed, by name. The order is drawn anew for each round, and none follows
            itself: it would find the processor's caches filled for it. Two alternate.
        warmup: Untimed rounds before.
        repeats: Timed rounds.
        clock: Seconds, of the wall or of the process.
        device: Where the steps compute; on CUDA a step ends when the device has done it.
        seed: Of the orders, the same for every call with it.

    Returns:
        Seconds of each step, round by round.
    """
    seconds: dict[Key, list[float]] = {name: [] for name in steps}
    for turn, order in enumerate(islice(_orders(list(steps), seed), warmup + repeats)):
        for name in order:
            _wait(device)
            started = clock()
            steps[name]()
            _wait(device)
            if turn >= warmup:
                seconds[name].append(clock() - started)
    return seconds


def rated(peaks: Mapping[str, float], device: torch.device) -> float | None:
    """Return what settings give for a GPU by the first words of its name that are there, or None.

    Whole words: a GH200 is no H200.
    """
    name = torch.cuda.get_device_name(device)
    known = (peak for words, peak in peaks.items() if re.search(rf"\b{re.escape(words)}\b", name))
    return next(known, None)


def peak_memory(step: Callable[[], object], device: torch.device) -> int:
    """Bytes that a step allocates on top of what is there before it, at their highest.

    Tensors alone: on the CPU counted from the allocator's events of one profiled step, which are
    the same every time, unlike the size of a process, of which small models are a small part.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
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


def _orders(names: list[Key], seed: int) -> Iterator[list[Key]]:
    """Yield random orders, none of which begins with the last of the one before."""
    draw = random.Random(seed)
    while True:
        last = names[-1]
        draw.shuffle(names)
        while len(names) > 1 and names[0] == last:
            draw.shuffle(names)
        yield names


def _wait(device: torch.device | None) -> None:
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
