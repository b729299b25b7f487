"""What a person sees of the speed of a training: its trace, and its share of a GPU's peak."""

import gzip
import json
import logging
from pathlib import Path
from unittest.mock import Mock

import pytest
from tiny_training import Train, make_run_config

from difftransformer.machine.gpus import bf16_peak
from difftransformer.tracking.history import ARTIFACTS
from difftransformer.tracking.tracker import RunTracker
from difftransformer.training.profiling import PROFILE_STEPS, TRACE
from difftransformer.training.progress import Progress


def test_some_steps_are_traced_and_no_number_changes(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = train(make_run_config(), "plain")
    monkeypatch.setenv(PROFILE_STEPS, "2")
    state = tmp_path / "traced" / "state"
    tracker = RunTracker(state, stage="pretrain", name="a", job_id="j")
    traced = train(make_run_config(), "traced", tracker=tracker)
    tracker.close("FINISHED")
    for name in ("model.safetensors", "history.csv"):
        assert (traced / "out" / name).read_bytes() == (plain / "out" / name).read_bytes()
    assert not (plain / "state" / TRACE).exists()
    trace = json.loads(gzip.decompress((state / ARTIFACTS / TRACE).read_bytes()))
    steps = {e["name"] for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep#")}
    assert len(steps) == 2


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 9.89e14),
        ("NVIDIA H100 PCIe", 7.56e14),
        ("NVIDIA A100-SXM4-80GB", 3.12e14),
        ("NVIDIA GH200 480GB", None),
    ],
)
def test_the_peak_of_a_gpu_goes_by_its_name(name: str, peak: float | None) -> None:
    assert bf16_peak(name) == peak


def test_the_line_has_the_share_of_the_peak(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Mock(side_effect=[0.0, 60.0])  # when it is made, and reports
    monkeypatch.setattr("difftransformer.training.progress.time.monotonic", clock)
    progress = Progress(tmp_path, run="a", seed=0, step=0, tokens_per_step=100, peak_speed=500.0)
    with caplog.at_level(logging.INFO):
        progress.report(120, 600, 4.1, 1e-3)
    assert "200 tok/s MFU 40% ETA" in caplog.text
