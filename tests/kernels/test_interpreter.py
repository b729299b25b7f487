"""Starts the session of what runs in Triton's interpreter: kernels, and the contract by them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "tests",
    [
        "tests/kernels/interpreted",
        "tests/attention/test_contract.py",
        "tests/attention/test_documents.py",
    ],
)
def test_in_the_interpreter(tests: str) -> None:
    pytest.importorskip("triton", reason="Triton is for Linux")
    command = [sys.executable, "-m", "pytest", tests, "-k", "fused", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout
