from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from evaluation_fixtures import *  # noqa: F403 - fixtures
from reporting_fixtures import *  # noqa: F403
from small_evaluation import running

from difftransformer.config.evaluations import BenchmarkConfig
from difftransformer.evaluation import timing
from difftransformer.provenance.result import read_result
from difftransformer.tracking.run_context import JobIdentity

Timed = Callable[[BenchmarkConfig], dict[str, float | None]]


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timed:
    """Return the metrics of a job of timings, whose processes all take their rounds in this one."""
    monkeypatch.setattr(timing, "run_in_subprocess", lambda _name, work, *args: work(*args))

    def measure(slice: BenchmarkConfig) -> dict[str, float | None]:
        threads, output = torch.get_num_threads(), tmp_path / "timed.json"
        identity = JobIdentity("benchmark", slice.scale, slice.evaluation, "fingerprint")
        try:
            timing.run_benchmark(slice, output=output, job=running(identity))
        finally:
            torch.set_num_threads(threads)
        result = read_result(output)
        assert result.provenance.hardware["cores"]
        return dict(result.metrics)

    return measure
