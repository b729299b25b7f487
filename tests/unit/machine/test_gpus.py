"""Two simulated GPUs, and real processes that reserve them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from difftransformer.errors import UserError
from difftransformer.machine import gpus

HOLD = """
import logging, os, subprocess, sys
logging.basicConfig(level=logging.INFO)
from difftransformer.machine import gpus
gpus.reserve({count}, exclusive={exclusive})
print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
sys.stdin.read()
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started = []

    def start_job(
        count: int = 1, sharing: str = "1", *, exclusive: bool = False, **variables: str
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD.format(count=count, exclusive=exclusive)],
            env={
                **os.environ,
                "TMPDIR": str(tmp_path),
                "CUDA_VISIBLE_DEVICES": "0,1",
                gpus.JOBS_PER_GPU: sharing,
                **variables,
            },
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start_job
    for process in started:
        process.kill()
        process.communicate()


def reserved_ids(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def waits(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "waiting for" in line, line
    return line


def test_third_job_gets_the_gpu_of_a_killed_job(start: Start) -> None:
    first, second = start(1), start(1)
    held = {reserved_ids(first), reserved_ids(second)}
    assert held == {"0", "1"}
    third = start(1)
    assert f"process {first.pid} on" in waits(third)
    first.kill()
    assert {reserved_ids(third), *held} == held


def test_job_waiting_for_two_gpus_is_not_overtaken(start: Start) -> None:
    holder = start(1)
    first_gpu = reserved_ids(holder)
    both = start(2)
    assert "waiting for 1 GPUs" in waits(both)
    behind = start(1)
    assert f"behind process {both.pid}" in waits(behind)
    holder.kill()
    assert reserved_ids(both) == "1,0" if first_gpu == "0" else "0,1"
    both.kill()
    assert reserved_ids(behind) in {"0", "1"}


def test_jobs_share_gpus_when_configured(start: Start) -> None:
    held = [reserved_ids(start(1, "2")) for _ in range(4)]
    assert sorted(held[:2]) == sorted(held[2:]) == ["0", "1"]
    assert waits(start(1, "2")).count("process") == 4


def test_job_that_does_not_share_waits_for_an_exclusive_gpu(start: Start) -> None:
    shared = [reserved_ids(start(1, "3")) for _ in range(3)]
    assert sorted(shared) in (["0", "0", "1"], ["0", "1", "1"])
    exclusive = start(1)
    assert waits(exclusive).count("process") == 3
    both = start(2, "3")  # several GPUs are never shared
    assert f"behind process {exclusive.pid}" in waits(both)


def test_no_slot_is_reserved_on_an_exclusive_gpu(start: Start) -> None:
    exclusive = reserved_ids(start(1))
    others = [reserved_ids(start(1, "2")) for _ in range(2)]
    assert others == [{"0": "1", "1": "0"}[exclusive]] * 2
    assert waits(start(1, "2")).count("process") == 3


def test_timed_job_does_not_share_its_gpu(start: Start) -> None:
    timed = reserved_ids(start(1, "2", exclusive=True))
    others = {reserved_ids(start(1, "2")) for _ in range(2)}
    assert others == {"0", "1"} - {timed}


def test_how_many_share_a_gpu_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpus.VISIBLE, "0,1")
    monkeypatch.delenv(gpus.JOBS_PER_GPU, raising=False)
    assert gpus.gpu_slots() == 2
    monkeypatch.setenv(gpus.JOBS_PER_GPU, "3")
    assert gpus.gpu_slots() == 6
    for wrong in ("0", "two", "-1", ""):
        monkeypatch.setenv(gpus.JOBS_PER_GPU, wrong)
        with pytest.raises(
            UserError, match=f"{gpus.JOBS_PER_GPU} is '{wrong}': set it to a number of"
        ):
            gpus.gpu_slots()


def test_what_a_job_starts_shares_its_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv(gpus.VISIBLE, "1")
    monkeypatch.setenv(gpus.RESERVED, "1")
    gpus.reserve(1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("visible", "locks"), [("3", 0), (None, 1)])
def test_gpus_assigned_by_a_scheduler_need_no_lock(
    tmp_path: Path, visible: str | None, locks: int
) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "SLURM_JOB_ID": "7"}
    environment.pop(gpus.VISIBLE, None)
    if visible is not None:
        environment[gpus.VISIBLE] = visible
    code = "from difftransformer.machine import gpus; gpus.visible_gpus = lambda: ['0'];"
    code += " gpus.reserve()"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert len(list(tmp_path.iterdir())) == locks


def test_jobs_of_one_allocation_share_out_its_gpus(start: Start) -> None:
    held = {reserved_ids(start(SLURM_JOB_ID="7")) for _ in range(2)}
    assert held == {"0", "1"}
    assert waits(start(exclusive=True, SLURM_JOB_ID="7")).count("process") == 2
    # Each allocation may count its GPUs from 0: those of another are others.
    assert {reserved_ids(start(SLURM_JOB_ID="8")) for _ in range(2)} == held


def test_timed_job_has_the_only_gpu_of_an_allocation_exclusively(start: Start) -> None:
    allocation = {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "3"}
    assert reserved_ids(start(sharing="2", exclusive=True, **allocation)) == "3"
    assert waits(start(sharing="2", **allocation)).count("process") == 1


def test_requesting_too_many_gpus_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpus.VISIBLE, "0,1")
    monkeypatch.delenv(gpus.RESERVED, raising=False)
    with pytest.raises(UserError, match="3 GPUs are requested and 2 are visible"):
        gpus.reserve(3)


def test_no_gpus_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv(gpus.VISIBLE, "")
    gpus.reserve(1)
    assert not list(tmp_path.iterdir())


def planted_link(lock_dir: Path, elsewhere: Path) -> None:
    lock_dir.symlink_to(elsewhere)


def planted_dangling_link(lock_dir: Path, elsewhere: Path) -> None:
    lock_dir.symlink_to(elsewhere / "not there")


def planted_open_folder(lock_dir: Path, elsewhere: Path) -> None:
    lock_dir.mkdir()
    lock_dir.chmod(0o777)


def planted_file(lock_dir: Path, elsewhere: Path) -> None:
    lock_dir.touch()


@pytest.mark.parametrize(
    "plant", [planted_link, planted_dangling_link, planted_open_folder, planted_file]
)
def test_lock_folder_planted_by_another_user_is_rejected(
    plant: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may write to /tmp, where its name can be foreseen."""
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    mine.mkdir()
    shared.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    monkeypatch.setattr(gpus, "visible_gpus", lambda: ["0"])
    for name in (gpus.RESERVED, gpus.JOBS_PER_GPU, gpus.VISIBLE, "LOCAL_RANK", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    lock_dir = shared / f"difftransformer-gpus-{os.getuid()}"
    plant(lock_dir, mine)
    with pytest.raises(
        UserError, match=f"^{lock_dir}: must be a folder of yours, writable only by you: .*TMPDIR$"
    ):
        gpus.reserve(1)
    assert not list(mine.iterdir())
