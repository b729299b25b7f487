"""Time models beside each other: rounds in fresh processes, in which everything has one turn.

Every row, backend and mode of a shape has one turn in each round, so that a machine with other
work to do disturbs all alike; ratios are taken within a round. Where a process finds its memory and
its code is drawn when it starts, and rounds of one process share that draw: how far a ratio lies
from that of the next process is seen in no number of rounds. So claims are over processes.
Models hold random weights and read random tokens: neither changes the time.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from itertools import accumulate, chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from difftransformer.config.evaluations import BenchmarkConfig, module_of
from difftransformer.config.timing import BatchConfig, Timing
from difftransformer.errors import BackendError
from difftransformer.machine import gpus
from difftransformer.machine.child_process import run_in_subprocess
from difftransformer.provenance.environment import Environment, capture
from difftransformer.tracking.run_context import Job

if TYPE_CHECKING:  # who only waits for processes needs no torch
    import torch

logger = logging.getLogger(__name__)

Key = TypeVar("Key")
Metrics = dict[str, float | None]
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}
"""Seconds of the wall, and those that this process computed in all of its threads."""
_SECONDS = "seconds/"


def run_benchmark(slice: BenchmarkConfig, *, output: Path, job: Job) -> None:
    """Time what an evaluation times, process after process, and write one result file.

    Everything is tracked but the seconds of single rounds.

    Raises:
        BackendError: A backend or device that was asked for cannot be used here.
        UserError: The models are more than the memory that is free; or a process was ended from
            outside.
    """
    config, threads = slice.config, job.identity.threads
    if config.device != "cpu":
        gpus.reserve(exclusive=True)  # here, or another job would have it between two processes
    found = [
        run_in_subprocess(
            f"process {number + 1} of {config.processes}", _time_here, slice, threads, number
        )
        for number in range(config.processes)
    ]
    by_process, resolved, environments = zip(*found, strict=True)
    job.tracker.log_params({"resolved": resolved[0]})
    metrics = merge_processes(by_process)
    job.write_result(
        output,
        slice.evaluation,
        metrics,
        slice.model_dump(mode="json") | {"resolved": resolved[0]},
        tracked={key: one for key, one in metrics.items() if not key.startswith(_SECONDS)},
        environment=max(environments, key=lambda one: one.peak_memory_gib or 0),
    )


def _time_here(
    slice: BenchmarkConfig, threads: int, process: int
) -> tuple[Metrics, dict[str, Any], Environment]:
    """Take the rounds of one process in this one, by its number."""
    import torch

    from difftransformer.models.kernels import choose_backend
    from difftransformer.models.linear import matmul_backend

    name, config = slice.evaluation, slice.config
    torch.set_num_threads(threads)
    device = gpus.choose_device(config.device, f"timings.{name}.device", exclusive=True)
    for backend in config.backends:
        choose_backend(backend, device, config.precision)
    resolved: dict[str, Any] = {"device": str(device), "threads": threads}
    if device.type == "cpu":
        resolved["matmul_backend"] = matmul_backend()
    measure = import_module(module_of(name, "measure")).measure
    return measure(slice, device, process), resolved, capture(threads)


def merge_processes(found: Sequence[Metrics]) -> Metrics:
    """Return the metrics of all processes as those of one job.

    Returns:
        Medians over the processes that have a number, None where it is None in one of them.
    """
    merged: Metrics = {}
    for key in dict.fromkeys(chain.from_iterable(found)):
        values = [metrics[key] for metrics in found if key in metrics]
        known = [one for one in values if one is not None]
        merged[key] = median(known) if len(known) == len(values) else None
    return merged


def time_shape(
    steps: Mapping[str, Callable[[], object]],
    call: BatchConfig,
    config: Timing,
    device: "torch.device",
    process: int,
) -> Metrics:
    """Time all that has a turn at a shape.

    Args:
        steps: What computes the tokens of one call, by {shape}/{row}/{backend}/{mode}.
        call: The tokens.
        config: Rounds and clock.
        device: Where the steps compute.
        process: Number of this process among those that take rounds, which gives the orders.

    Returns:
        seconds/{place}/{process}/{round}; tokens_per_second/{place}, median over the rounds, None
        where a backend has no kernel for a row's heads.

    Raises:
        BackendError: No backend has one for a row.
    """
    able = {place: step for place, step in steps.items() if _runs(place, step)}
    if refused := sorted(_rows(steps) - _rows(able)):
        raise BackendError(
            f"{next(iter(steps)).partition('/')[0]}: {', '.join(refused)}: no backend of "
            f"{', '.join(config.backends)} takes its heads: add sdpa"
        )
    rounds = {"warmup": config.warmup, "repeats": config.repeats, "seed": process}
    seconds = time_interleaved(able, **rounds, clock=CLOCKS[config.clock], device=device)
    metrics: Metrics = {f"tokens_per_second/{place}": None for place in steps}
    for place, taken in seconds.items():
        metrics |= {f"{_SECONDS}{place}/{process}/{r}": one for r, one in enumerate(taken)}
        speed = call.batch_size * call.seq_len / median(taken)
        metrics[f"tokens_per_second/{place}"] = speed
        logger.info("%s: %.4g tokens/s", place, speed)
    return metrics


def _rows(places: Iterable[str]) -> set[str]:
    return {place.split("/")[1] for place in places}


def _runs(place: str, step: Callable[[], object]) -> bool:
    try:
        step()
    except BackendError as error:
        logger.warning("%s: left out: %s", place, error)
        return False
    return True


def time_interleaved(
    steps: Mapping[Key, Callable[[], object]],
    *,
    warmup: int,
    repeats: int,
    clock: Clock = time.perf_counter,
    device: "torch.device | None" = None,
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
    import torch

    def wait() -> None:
        if device is not None and device.type == "cuda":
            torch.cuda.synchronize(device)

    draw, order = random.Random(seed), list(steps)
    seconds: dict[Key, list[float]] = {name: [] for name in steps}
    for turn in range(warmup + repeats):
        last = order[-1]
        draw.shuffle(order)
        while len(order) > 1 and order[0] == last:
            draw.shuffle(order)
        for name in order:
            wait()
            started = clock()
            steps[name]()
            wait()
            if turn >= warmup:
                seconds[name].append(clock() - started)
    return seconds


def peak_memory(step: Callable[[], object], device: "torch.device") -> int:
    """Bytes that a step allocates on top of what is there before it, at their highest.

    Tensors alone: on the CPU counted from the allocator's events of one profiled step, which are
    the same every time, unlike the size of a process, of which small models are a small part.
    """
    if device.type == "cuda":
        import torch

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
    events = (event for event in kineto.events() if event.name() == "[memory]")
    changes: list[int] = [
        event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())
    ]
    return max(accumulate(changes, initial=0))
