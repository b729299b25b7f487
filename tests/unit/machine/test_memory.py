"""Free memory of the machine and its cgroups, and the error line when it runs out."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from difftransformer.machine import memory


def test_running_out_all_the_same_is_one_line(tmp_path: Path) -> None:
    code = (
        "import resource\n"
        "from difftransformer.provenance.command_errors import report_errors\n"
        "with report_errors():\n"
        "    import torch\n"
        "    limit = 16 * 2**30\n"
        "    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "    torch.empty(2**35)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "error: out of memory" in ended.stderr and "reduce batch size" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_is_free_is_a_sane_number() -> None:
    assert 2**20 < memory.available_bytes(torch.device("cpu")) < 2**50


@pytest.mark.parametrize(
    ("own", "root", "names"),
    [
        ("0::/slurm/job_1/step_0", "", ("memory.max", "memory.current")),
        ("4:cpu,memory:/slurm/job_1/step_0", "memory",
         ("memory.limit_in_bytes", "memory.usage_in_bytes")),
    ],
)  # fmt: skip
def test_the_limit_of_a_job_counts_at_whatever_level_it_lies(
    own: str, root: str, names: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").write_text(f"1:name=systemd:/elsewhere\n{own}\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path / "mounted")
    monkeypatch.setattr(memory, "_OWN_CGROUPS", tmp_path / "own")
    step = tmp_path / "mounted" / root / "slurm" / "job_1" / "step_0"
    step.mkdir(parents=True)
    for folder, most in ((step, "max"), (step.parent, "5000"), (step.parents[2], "9000")):
        for name, text in zip(
            (*names, "memory.stat"), (most, "1000", "inactive_file 200"), strict=True
        ):
            (folder / name).write_text(f"{text}\n")
    assert memory.available_bytes(torch.device("cpu")) == 5000 - 1000 + 200
