"""What the profile says, without a cluster."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slurm


def test_a_job_that_fails_after_its_successor_removes_nothing(
    repository: Path, tmp_path: Path
) -> None:
    rule = 'rule one:\n    output: "whole"\n    shell: "touch whole; exit 1"\n'
    (tmp_path / "Snakefile").write_text(rule)
    profile = ["--workflow-profile", str(repository / "profiles" / "slurm")]
    ended = subprocess.run(
        [sys.executable, "-m", "snakemake", *profile, "--executor", "local", "--retries", "0"],
        cwd=tmp_path, check=False, timeout=60,
    )  # fmt: skip
    assert ended.returncode != 0
    assert (tmp_path / "whole").exists()
