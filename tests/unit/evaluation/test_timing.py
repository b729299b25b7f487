"""Interleaved timing rounds in fresh processes, merged into one result, and peak memory."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest
import torch
from steps import step_words

from difftransformer.evaluation.timing import merge_processes, peak_memory, time_interleaved

MODEL = {
    "vocab_size": 16, "d_model": 8, "num_layers": 1, "ffn_dim": 8, "max_positions": 8,
    "attention": {"variant": "softmax", "head_dim": 4},
}  # fmt: skip


def test_each_step_runs_once_per_round_and_after_every_other_step() -> None:
    done: list[str] = []
    steps = {name: (lambda name=name: done.append(name)) for name in "abc"}
    ticks = itertools.count()
    seconds = time_interleaved(steps, warmup=1, repeats=29, clock=lambda: next(ticks))
    assert all(sorted(done[at : at + 3]) == ["a", "b", "c"] for at in range(0, 90, 3))
    assert set(itertools.pairwise(done)) == set(itertools.permutations("abc", 2))
    assert seconds == {name: [1] * 29 for name in "abc"}
    before = list(done)
    time_interleaved(steps, warmup=1, repeats=29, clock=lambda: next(ticks))
    assert done == before + before


@pytest.mark.parametrize(("names", "expected"), [("ab", "ababab"), ("a", "aaa")])
def test_two_steps_alternate_and_one_repeats(names: str, expected: str) -> None:
    done: list[str] = []
    steps = {name: (lambda name=name: done.append(name)) for name in names}
    time_interleaved(steps, warmup=0, repeats=3)
    assert "".join(done) in (expected, expected[::-1])


def test_a_slow_round_slows_all_steps_equally() -> None:
    now = 0.0

    def work(cost: float) -> None:
        nonlocal now
        now += cost * (1 if now < 10 else 5)  # another job starts

    steps = {"one": lambda: work(1.0), "two": lambda: work(2.0)}
    seconds = time_interleaved(steps, warmup=0, repeats=20, clock=lambda: now)
    ratios = [a / b for a, b in zip(seconds["one"], seconds["two"], strict=True)]
    assert quantiles(ratios, n=4) == [0.5, 0.5, 0.5]
    assert min(seconds["one"]) == 1.0 and max(seconds["one"]) == 5.0


@pytest.mark.parametrize("size", [1000, 50_000])
def test_peak_memory_is_that_of_simultaneously_allocated_tensors(size: int) -> None:
    def step() -> None:
        for _ in range(3):  # each is freed before the next
            torch.empty(size, dtype=torch.float32).fill_(1.0)

    peak_bytes = peak_memory(step, torch.device("cpu"))
    assert 4 * size <= peak_bytes <= 4 * size + 4096


def test_merging_keeps_seconds_per_process_and_takes_medians_of_others() -> None:
    metrics: list[dict[str, float | None]] = [
        {"seconds/a/0/0": 1.0, "seconds/a/0/1": 2.0, "speed/a": 5.0, "share": None, "bytes": 7},
        {"seconds/a/1/0": 3.0, "seconds/a/1/1": 4.0, "speed/a": 1.0, "share": 0.5},
    ]
    seconds = {"seconds/a/0/0": 1.0, "seconds/a/0/1": 2.0, "seconds/a/1/0": 3.0}
    assert merge_processes(metrics) == seconds | {
        "seconds/a/1/1": 4.0, "speed/a": 3.0, "share": None, "bytes": 7,
    }  # fmt: skip


def command(folder: Path, **changes: Any) -> subprocess.CompletedProcess[str]:
    """Run the job as a command on one small model."""
    config = {
        "device": "cpu", "threads": 1, "processes": 3, "warmup": 0, "repeats": 3,
        "backends": ["eager"], "shapes": {"short": {"label": "8", "seq_len": 8, "batch_size": 1}},
    }  # fmt: skip
    slice = {
        "scale": "unit", "evaluation": "throughput", "config": config | changes,
        "models": {"transformer": {"short": MODEL}},
    }  # fmt: skip
    (folder / "slice.json").write_text(json.dumps(slice))
    words = step_words("benchmark", "slice.json", {}, {"result": "timed.json"}, "--log", "job.log")
    return subprocess.run(
        [sys.executable, "-m", "difftransformer", *words],
        cwd=folder, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MLFLOW_TRACKING_URI": "off"},
        capture_output=True, check=False,
    )  # fmt: skip


def test_the_command_runs_rounds_in_separate_processes(tmp_path: Path) -> None:
    ended = command(tmp_path)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((tmp_path / "timed.json").read_text())
    rounds = {f"{process}/{number}" for process in range(3) for number in range(3)}
    start = "seconds/short/transformer/eager/training/"
    assert {name.removeprefix(start) for name in result["metrics"] if start in name} == rounds
    assert result["settings"]["resolved"]["device"] == "cpu"
    assert result["provenance"]["peak_memory_gib"] > 0.1  # of one that has torch
    log = (tmp_path / "job.log").read_text()
    assert log.count("short/transformer/eager/training: ") == 3  # each said so


def test_an_error_in_a_process_is_a_one_line_error_of_the_command(tmp_path: Path) -> None:
    ended = command(tmp_path, backends=["flash_attn"], precision="bf16")
    assert ended.returncode == 2
    *_, line = ended.stderr.splitlines()
    assert line.startswith("error: backend flash_attn cannot run: ")
    assert "Traceback" not in ended.stderr and not (tmp_path / "timed.json").exists()
