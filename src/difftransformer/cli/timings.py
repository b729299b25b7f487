"""Subcommands of the rules that time models on this machine."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from difftransformer.cli.frame import (
    Code,
    Log,
    Output,
    Root,
    Slice,
    Threads,
    Uri,
    command,
    job,
    read,
)
from difftransformer.provenance.job import JobIdentity, reporting

if TYPE_CHECKING:
    from difftransformer.analysis.timing_result import TimingSlice


@command
def measure_throughput(
    slice: Slice,
    output: Output,
    threads: Threads = 1,
    code: Code = "",
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Time training and forward passes of all rows of table 7 on this machine."""
    # torch reads this when it is imported; the profiler's C++ says when it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with reporting(log):
        from difftransformer.analysis.throughput import KIND, measure_throughput
        from difftransformer.config.throughput import ThroughputSlice

        config = read(slice, ThroughputSlice)
    _measure(measure_throughput, KIND, config, output, threads, code, results, tracking, log)


@command
def measure_decoding(
    slice: Slice,
    output: Output,
    threads: Threads = 1,
    code: Code = "",
    results: Root = Path("results"),
    tracking: Uri = "",
    log: Log = None,
) -> None:
    """Time decoding with a KV cache of all rows of v2_decoding on this machine."""
    with reporting(log):
        from difftransformer.analysis.decoding import KIND, measure_decoding
        from difftransformer.config.decoding import DecodingSlice

        config = read(slice, DecodingSlice)
    _measure(measure_decoding, KIND, config, output, threads, code, results, tracking, log)


def _measure(
    measure: Callable[..., None],
    kind: str,
    config: "TimingSlice",
    output: Path,
    threads: int,
    code: str,
    results: Path,
    tracking: str,
    log: Path | None,
) -> None:
    """Frame timings as a tracked job; the function has the name of the rule."""
    from difftransformer.analysis.timing_result import timing_fingerprint

    identity = JobIdentity(
        rule=measure.__name__,
        stage=kind,
        scale=config.scale,
        run=kind,
        fingerprint=timing_fingerprint(measure.__name__, config, code),
        threads=threads,
    )
    with job(identity, config, results, tracking, log) as running:
        measure(config, output=output, threads=threads, tracker=running.tracker, code=code)
