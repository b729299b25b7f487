"""CPU benchmarks run at their smallest sizes; their numbers are not checked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
CALLS = (
    "checkpoint_stall.py --d-model 128 --layers 1 --repeats 1",
    "checkpoint_stall.py --d-model 128 --layers 1 --repeats 1 --world-size 2",
    "claim_power.py --repeats 16",
    "dex_cost.py --shape tiny --repeats 2",
    "prefix_sharing.py --lengths 64 --samples 2",
    "step_profile.py --shape small --model diff_v1 --steps 1",
    "training_step.py --shape small --warmup 0 --repeats 2",
    "verdict_coverage.py --repeats 20",
)


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_every_cpu_benchmark_runs(call: str, tmp_path: Path) -> None:
    script, *options = call.split()
    ended = subprocess.run(
        [sys.executable, str(FOLDER / script), *options],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip()
