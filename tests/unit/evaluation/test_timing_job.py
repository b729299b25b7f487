"""What several processes found becomes one result, and what one cannot do is said once."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from steps import step_words

from difftransformer.evaluation.timing_job import together

MODEL = {
    "vocab_size": 16, "d_model": 8, "num_layers": 1, "ffn_dim": 8, "max_positions": 8,
    "attention": {"variant": "softmax", "head_dim": 4},
}  # fmt: skip


def test_rounds_keep_their_process_and_other_numbers_are_medians() -> None:
    found: list[dict[str, float | None]] = [
        {"seconds/a/0": 1.0, "seconds/a/1": 2.0, "speed/a": 5.0, "share": None, "bytes": 7},
        {"seconds/a/0": 3.0, "seconds/a/1": 4.0, "speed/a": 1.0, "share": 0.5},
        {"seconds/a/0": 5.0, "seconds/a/1": 6.0, "speed/a": 3.0, "share": 0.5},
    ]
    assert together(found) == {
        "seconds/a/0/0": 1.0, "seconds/a/0/1": 2.0, "seconds/a/1/0": 3.0, "seconds/a/1/1": 4.0,
        "seconds/a/2/0": 5.0, "seconds/a/2/1": 6.0, "speed/a": 3.0, "share": None, "bytes": 7,
    }  # fmt: skip


def command(folder: Path, **changes: Any) -> subprocess.CompletedProcess[str]:
    """Run the job as a command on one small model."""
    config = {
        "device": "cpu", "threads": 1, "processes": 3, "warmup": 0, "repeats": 3,
        "backends": ["eager"], "shapes": {"short": {"label": "8", "seq_len": 8, "batch_size": 1}},
    }  # fmt: skip
    slice = {
        "scale": "unit", "measurement": "throughput", "config": config | changes,
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


def test_the_command_takes_its_rounds_in_processes_of_their_own(tmp_path: Path) -> None:
    ended = command(tmp_path)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((tmp_path / "timed.json").read_text())
    rounds = {f"{process}/{number}" for process in range(3) for number in range(3)}
    start = "seconds/short/transformer/eager/training/"
    assert {one.removeprefix(start) for one in result["metrics"] if start in one} == rounds
    assert result["settings"]["resolved"]["device"] == "cpu"
    assert result["provenance"]["peak_memory_gib"] > 0.1  # of one that has torch
    log = (tmp_path / "job.log").read_text()
    assert log.count("short/transformer/eager/training: ") == 3  # each said so


def test_what_a_process_refuses_is_one_line_of_the_command(tmp_path: Path) -> None:
    ended = command(tmp_path, backends=["flash_attn"], precision="bf16")
    assert ended.returncode == 2
    *_, line = ended.stderr.splitlines()
    assert line.startswith("error: backend flash_attn cannot run: ")
    assert "Traceback" not in ended.stderr and not (tmp_path / "timed.json").exists()
