"""The one result of a job of timings: its identity, and the file that it leaves."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from difftransformer.config.decoding import DecodingSlice
from difftransformer.config.throughput import ThroughputSlice
from difftransformer.config.timing import TimingConfig
from difftransformer.models.device import choose_device
from difftransformer.models.kernels import choose_backend
from difftransformer.provenance.fingerprint import job_fingerprint
from difftransformer.provenance.result import Number, Result, job_id, origin, write_result
from difftransformer.provenance.tracking import Tracker

TimingSlice = ThroughputSlice | DecodingSlice


def timing_fingerprint(rule: str, slice: TimingSlice, code: str) -> str:
    """Identity of the job's result; the machine is recorded in it and no part of this."""
    return job_fingerprint(rule, slice, code, "", None)


def prepare(config: TimingConfig, threads: int, place: str) -> torch.device:
    """Set the threads and return the device, once every backend is known to run there.

    Raises:
        BackendError: A backend or device that was asked for cannot be used here.
    """
    torch.set_num_threads(threads)
    device = choose_device(config.device, place)
    for backend in config.backends:
        choose_backend(backend, device, config.precision)
    return device


def write_timings(
    kind: str,
    slice: TimingSlice,
    metrics: dict[str, Number],
    resolved: Mapping[str, Any],
    *,
    identity: str,
    started: datetime,
    output: Path,
    tracker: Tracker,
) -> None:
    """Write the result file, and track everything but the seconds of single rounds.

    Args:
        kind: Kind of the result, which is its run, too.
        slice: What was timed.
        metrics: By name; seconds of single rounds have ``seconds/`` in it.
        resolved: What settings came to, ``threads`` among them.
        identity: See `timing_fingerprint`.
        started: When the job began.
        output: JSON file of the result.
        tracker: Receives the medians and the result file.
    """
    result = Result(
        kind=kind,
        job_id=job_id(kind, kind, None, identity),
        scale=slice.scale,
        run=kind,
        seed=0,
        metrics=metrics,
        settings=slice.model_dump(mode="json") | {"resolved": dict(resolved)},
        provenance=origin(identity, started=started, threads=resolved["threads"]),
    )
    write_result(output, result)
    tracker.log_params({"resolved": dict(resolved)})
    tracker.log_metrics(
        {key: one for key, one in metrics.items() if one is not None and "seconds/" not in key}
    )
    tracker.log_artifact(output)
