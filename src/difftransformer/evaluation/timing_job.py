"""The job of timings: the same rounds in several fresh processes, one after the other.

Where a process finds its memory and its code is drawn when it starts, and rounds of one process
share that draw: how far a ratio of speeds lies from that of the next process is seen in no number
of rounds. So what is claimed of speeds is over processes.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from difftransformer.config.measurements import module_of
from difftransformer.config.timing import TimingSlice
from difftransformer.machine import gpus
from difftransformer.machine.child_process import run_in_subprocess
from difftransformer.provenance.environment import Environment, capture
from difftransformer.provenance.fingerprint import job_fingerprint
from difftransformer.tracking.run_context import Job, JobIdentity

Metrics = Mapping[str, float | None]
SECONDS = "seconds/"
"""How numbers of single rounds begin."""


class Timed(NamedTuple):
    """What one process found."""

    metrics: Metrics
    resolved: dict[str, Any]
    """Device, threads, matmul backend."""
    environment: Environment


def identify(slice: TimingSlice, threads: int, code: str) -> JobIdentity:
    """Return which job times; the machine is recorded in its result and no part of this.

    ``threads``, the cores of the job, are those of one operation unless the settings name others.
    """
    return JobIdentity(
        rule="benchmark",
        scale=slice.scale,
        run=slice.measurement,
        fingerprint=job_fingerprint("benchmark", slice, code, "", None),
        threads=slice.config.threads or threads,
    )


def measure_timings(slice: TimingSlice, *, output: Path, job: Job) -> None:
    """Time what a measurement times, process after process, and write one result file.

    Everything is tracked but the seconds of single rounds.

    Raises:
        BackendError: A backend or device that was asked for cannot be used here.
        UserError: The models are more than the memory that is free; or a process was ended from
            outside.
    """
    config, threads = slice.config, job.identity.threads
    if config.device != "cpu":
        gpus.take(alone=True)  # here, or another job would have it between two processes
    found = [
        run_in_subprocess(
            f"process {number + 1} of {config.processes}", time_here, slice, threads, number
        )
        for number in range(config.processes)
    ]
    resolved = found[0].resolved
    job.tracker.log_params({"resolved": resolved})
    metrics = together([one.metrics for one in found])
    job.write_result(
        output,
        slice.measurement,
        metrics,
        slice.model_dump(mode="json") | {"resolved": resolved},
        tracked={key: one for key, one in metrics.items() if not key.startswith(SECONDS)},
        environment=max(
            (one.environment for one in found), key=lambda one: one.peak_memory_gib or 0
        ),
    )


def time_here(slice: TimingSlice, threads: int, process: int) -> Timed:
    """Take the rounds of one process in this one, by its number."""
    # Here and not above: who only waits for processes needs no torch.
    import torch

    from difftransformer.machine.gpus import choose_device
    from difftransformer.models.kernels import choose_backend
    from difftransformer.models.matrices import matmul_backend

    name, config = slice.measurement, slice.config
    torch.set_num_threads(threads)
    device = choose_device(config.device, f"timings.{name}.device", alone=True)
    for backend in config.backends:
        choose_backend(backend, device, config.precision)
    resolved: dict[str, Any] = {"device": str(device), "threads": threads}
    if device.type == "cpu":
        resolved["matmul_backend"] = matmul_backend()
    measure = import_module(module_of(name, "measure")).measure
    metrics: Metrics = measure(slice, device, process)
    return Timed(metrics, resolved, capture(threads))


def together(found: Sequence[Metrics]) -> dict[str, float | None]:
    """Return the metrics of all processes as those of one job.

    Returns:
        seconds/{place}/{process}/{round}; of every other number the median of the processes that
        found it, None where one of them found none.
    """
    seconds: dict[str, float | None] = {}
    others: dict[str, list[float | None]] = {}
    for process, metrics in enumerate(found):
        for key, one in metrics.items():
            if key.startswith(SECONDS):
                place, _, number = key.rpartition("/")
                seconds[f"{place}/{process}/{number}"] = one
            else:
                others.setdefault(key, []).append(one)
    return seconds | {key: _median(values) for key, values in others.items()}


def _median(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return median(known) if len(known) == len(values) else None
