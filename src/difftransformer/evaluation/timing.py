"""Benchmarks: models timed in interleaved rounds, in several fresh processes.

Every row (model), backend and mode of a shape is timed once per round, so that other load on the
machine disturbs all alike; ratios are taken within a round. The memory layout of a process is
random and the same in all its rounds, so claims are tested over processes. Models have random
weights and read random tokens: neither changes the time.
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

if TYPE_CHECKING:  # the parent process does not import torch
    import torch

logger = logging.getLogger(__name__)

Key = TypeVar("Key")
Metrics = dict[str, float | None]
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}
"""Wall time, and CPU time of all threads of this process, in seconds."""
_SECONDS = "seconds/"


def run_benchmark(benchmark: BenchmarkConfig, *, output: Path, job: Job) -> None:
    """Run a benchmark in several processes, one after the other, and write one result file.

    All metrics are logged to the tracker except the seconds of single rounds.

    Raises:
        BackendError: A configured backend or device cannot be used here.
        UserError: The models exceed the free memory, or a process was killed.
    """
    config, threads = benchmark.config, job.identity.threads
    if config.device != "cpu":
        gpus.reserve(exclusive=True)  # held between the processes, too
    count = config.processes
    outputs = [
        run_in_subprocess(f"process {n + 1} of {count}", _time_in_process, benchmark, threads, n)
        for n in range(count)
    ]
    by_process, resolved, environments = zip(*outputs, strict=True)
    job.tracker.log_params({"resolved": resolved[0]})
    metrics = merge_processes(by_process)
    job.write_result(
        output,
        benchmark.evaluation,
        metrics,
        benchmark.model_dump(mode="json") | {"resolved": resolved[0]},
        tracked={key: v for key, v in metrics.items() if not key.startswith(_SECONDS)},
        environment=max(environments, key=lambda environment: environment.peak_memory_gib or 0),
    )


def _time_in_process(
    benchmark: BenchmarkConfig, threads: int, process: int
) -> tuple[Metrics, dict[str, Any], Environment]:
    """Run the rounds of process number ``process`` in this process."""
    import torch

    from difftransformer.models.kernels import choose_backend
    from difftransformer.models.linear import matmul_backend

    name, config = benchmark.evaluation, benchmark.config
    torch.set_num_threads(threads)
    device = gpus.choose_device(config.device, f"timings.{name}.device", exclusive=True)
    for backend in config.backends:
        choose_backend(backend, device, config.precision)
    resolved: dict[str, Any] = {"device": str(device), "threads": threads}
    if device.type == "cpu":
        resolved["matmul_backend"] = matmul_backend()
    measure = import_module(module_of(name, "measure")).measure
    return measure(benchmark, device, process), resolved, capture(threads)


def merge_processes(by_process: Sequence[Metrics]) -> Metrics:
    """Return the median of each metric over the processes that measured it.

    A metric that is None in one of them is None.
    """
    merged: Metrics = {}
    for key in dict.fromkeys(chain.from_iterable(by_process)):
        values = [metrics[key] for metrics in by_process if key in metrics]
        defined = [value for value in values if value is not None]
        merged[key] = median(defined) if len(defined) == len(values) else None
    return merged


def time_shape(
    steps: Mapping[str, Callable[[], object]],
    call: BatchConfig,
    config: Timing,
    device: "torch.device",
    process: int,
) -> Metrics:
    """Return the timings of all rows (models), backends and modes of a shape.

    Args:
        steps: Functions that compute the tokens of one call, by {shape}/{row}/{backend}/{mode}.
        call: Batch size and sequence length of a call.
        config: Number of rounds, and the clock.
        device: Device that the steps run on.
        process: Number of this process; seeds the random order of the steps in each round.

    Returns:
        seconds/{key}/{process}/{round} for each key of ``steps``, and tokens_per_second/{key}, the
        median over the rounds; None if the backend has no kernel for the row's heads.

    Raises:
        BackendError: No backend supports a row's heads.
    """
    supported = {key: step for key, step in steps.items() if _runs(key, step)}
    if unsupported := sorted(_rows(steps) - _rows(supported)):
        raise BackendError(
            f"{next(iter(steps)).partition('/')[0]}: {', '.join(unsupported)}: no backend of "
            f"{', '.join(config.backends)} supports its heads: add sdpa"
        )
    rounds = {"warmup": config.warmup, "repeats": config.repeats, "seed": process}
    seconds = time_interleaved(supported, **rounds, clock=CLOCKS[config.clock], device=device)
    metrics: Metrics = {f"tokens_per_second/{key}": None for key in steps}
    for key, durations in seconds.items():
        metrics |= {f"{_SECONDS}{key}/{process}/{r}": t for r, t in enumerate(durations)}
        speed = call.batch_size * call.seq_len / median(durations)
        metrics[f"tokens_per_second/{key}"] = speed
        logger.info("%s: %.4g tokens/s", key, speed)
    return metrics


def _rows(keys: Iterable[str]) -> set[str]:
    return {key.split("/")[1] for key in keys}


def _runs(key: str, step: Callable[[], object]) -> bool:
    try:
        step()
    except BackendError as error:
        logger.warning("%s: skipped: %s", key, error)
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
    """Return the seconds of each step in each round; every round runs all steps once.

    Args:
        steps: Functions by name. Each round has a random order, in which no step follows itself,
            since it would find the processor's caches filled. Two steps alternate.
        warmup: Number of untimed rounds before the timed ones.
        repeats: Number of timed rounds.
        clock: Function that returns wall time or process time in seconds.
        device: Device that the steps run on; on CUDA a step ends when the device has finished it.
        seed: Seed of the random order of the steps in each round.
    """
    import torch

    def wait() -> None:
        if device is not None and device.type == "cuda":
            torch.cuda.synchronize(device)

    rng, order = random.Random(seed), list(steps)
    seconds: dict[Key, list[float]] = {name: [] for name in steps}
    for number in range(warmup + repeats):
        last = order[-1]
        rng.shuffle(order)
        while len(order) > 1 and order[0] == last:
            rng.shuffle(order)
        for name in order:
            wait()
            started = clock()
            steps[name]()
            wait()
            if number >= warmup:
                seconds[name].append(clock() - started)
    return seconds


def peak_memory(step: Callable[[], object], device: "torch.device") -> int:
    """Return the peak memory in bytes that a step allocates for tensors.

    On the CPU the peak comes from the allocator's events of one profiled step. They are the same
    every time, unlike the memory of the process.
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
