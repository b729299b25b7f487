"""Timing models beside each other on this machine: turns, clocks, memory, and the one result.

Every row, backend and mode of a shape has one turn in each round, so that a machine with other
work to do disturbs all alike; ratios are taken within a round. Models hold random weights and read
random tokens: neither changes the time.
"""

import logging
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from difftransformer.config.measurements import module_of
from difftransformer.config.timing import BatchConfig, Timing, TimingSlice
from difftransformer.evaluation.subject import Metrics
from difftransformer.models.device import choose_device
from difftransformer.models.kernels import choose_backend
from difftransformer.models.memory import cuda_peak
from difftransformer.provenance.fingerprint import job_fingerprint
from difftransformer.provenance.result import Result, job_id, origin, write_result
from difftransformer.provenance.tracking import Tracker

logger = logging.getLogger(__name__)

STAGE = "timings"
Key = TypeVar("Key")
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}
"""Seconds of the wall, and those that this process computed in all of its threads."""


class Turn(NamedTuple):
    """One thing that is timed at a shape."""

    row: str
    backend: str
    mode: str


def measure_timings(
    slice: TimingSlice, *, output: Path, threads: int, tracker: Tracker, code: str
) -> None:
    """Time what a measurement times and write one result file.

    Args:
        slice: What is timed, and the models.
        output: JSON file of the result.
        threads: Cores of the job, threads of one operation unless the settings say otherwise.
        tracker: Receives everything but the seconds of single rounds, and the result file.
        code: Fingerprint of the code that is timed.

    Raises:
        BackendError: A backend or device that was asked for cannot be used here.
        UserError: The models are more than the memory that is free.
    """
    started, name = datetime.now(UTC), slice.measurement
    threads = slice.config.threads or threads
    torch.set_num_threads(threads)
    device = choose_device(slice.config.device, f"timings.{name}.device")
    for backend in slice.config.backends:
        choose_backend(backend, device, slice.config.precision)
    measure = import_module(module_of(name, "measure")).measure
    metrics: Metrics = measure(slice, device)
    identity = timing_fingerprint(slice, code)
    resolved = {"device": str(device), "threads": threads}
    result = Result(
        kind=name,
        job_id=job_id(STAGE, name, None, identity),
        scale=slice.scale,
        run=name,
        seed=0,
        metrics=metrics,
        settings=slice.model_dump(mode="json") | {"resolved": resolved},
        provenance=origin(identity, started=started, threads=threads),
    )
    write_result(output, result)
    tracker.log_params({"resolved": resolved})
    tracker.log_metrics(
        {key: one for key, one in metrics.items() if one is not None and "seconds/" not in key}
    )
    tracker.log_artifact(output)


def timing_fingerprint(slice: TimingSlice, code: str) -> str:
    """Identity of the job's result; the machine is recorded in it and no part of this."""
    return job_fingerprint("measure_timings", slice, code, "", None)


def time_shape(
    shape: str,
    call: BatchConfig,
    steps: Mapping[Turn, Callable[[], object]],
    config: Timing,
    device: torch.device,
) -> Metrics:
    """Time all that has a turn at a shape; a step computes the tokens of one call.

    Returns:
        seconds/{shape}/{row}/{backend}/{mode}/{round}; tokens_per_second/{shape}/{row}/{backend}/
        {mode}, median over rounds.
    """
    seconds = take_turns(
        steps,
        warmup=config.warmup,
        repeats=config.repeats,
        clock=CLOCKS[config.clock],
        device=device,
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


def _orders(names: list[Key]) -> Iterator[list[Key]]:
    """Yield random orders, none of which begins with the last of the one before."""
    draw = random.Random(0)
    while True:
        last = names[-1]
        draw.shuffle(names)
        while len(names) > 1 and names[0] == last:
            draw.shuffle(names)
        yield names


def _wait(device: torch.device | None) -> None:
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
