"""Two cards that are nothing but ids, and real processes that want them."""

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
gpus.take({count}, alone={alone})
print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
sys.stdin.read()
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started = []

    def one(
        count: int = 1, sharing: str = "1", *, alone: bool = False, **variables: str
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD.format(count=count, alone=alone)],
            env={
                **os.environ,
                "TMPDIR": str(tmp_path),
                "CUDA_VISIBLE_DEVICES": "0,1",
                gpus.SHARED: sharing,
                **variables,
            },
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield one
    for process in started:
        process.kill()
        process.communicate()


def cards(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def waits(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "waiting for" in line, line
    return line


def test_two_jobs_have_a_card_each_and_the_third_that_of_the_killed_one(start: Start) -> None:
    one, two = start(1), start(1)
    held = {cards(one), cards(two)}
    assert held == {"0", "1"}
    third = start(1)
    assert f"process {one.pid} on" in waits(third)
    one.kill()
    assert {cards(third), *held} == held


def test_who_waits_for_two_is_not_overtaken(start: Start) -> None:
    one = start(1)
    first = cards(one)
    both = start(2)
    assert "waiting for 1 GPUs" in waits(both)
    behind = start(1)
    assert f"behind process {both.pid}" in waits(behind)
    one.kill()
    assert cards(both) == "1,0" if first == "0" else "0,1"
    both.kill()
    assert cards(behind) in {"0", "1"}


def test_jobs_share_cards_where_that_is_said(start: Start) -> None:
    held = [cards(start(1, "2")) for _ in range(4)]
    assert sorted(held[:2]) == sorted(held[2:]) == ["0", "1"]
    assert waits(start(1, "2")).count("process") == 4


def test_who_does_not_share_has_a_card_alone(start: Start) -> None:
    shared = [cards(start(1, "3")) for _ in range(3)]
    assert sorted(shared) in (["0", "0", "1"], ["0", "1", "1"])
    whole = start(1)
    assert waits(whole).count("process") == 3
    both = start(2, "3")  # several cards are never shared
    assert f"behind process {whole.pid}" in waits(both)


def test_places_are_not_taken_on_a_card_that_somebody_has_alone(start: Start) -> None:
    alone = cards(start(1))
    others = [cards(start(1, "2")) for _ in range(2)]
    assert others == [{"0": "1", "1": "0"}[alone]] * 2
    assert waits(start(1, "2")).count("process") == 3


def test_what_is_timed_shares_its_card_with_nobody(start: Start) -> None:
    timed = cards(start(1, "2", alone=True))
    others = {cards(start(1, "2")) for _ in range(2)}
    assert others == {"0", "1"} - {timed}


def test_how_many_share_a_card_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpus.VISIBLE, "0,1")
    monkeypatch.delenv(gpus.SHARED, raising=False)
    assert gpus.places() == 2
    monkeypatch.setenv(gpus.SHARED, "3")
    assert gpus.places() == 6
    for wrong in ("0", "two", "-1", ""):
        monkeypatch.setenv(gpus.SHARED, wrong)
        with pytest.raises(UserError, match=f"{gpus.SHARED} is '{wrong}': give the number of"):
            gpus.places()


def test_what_a_job_starts_shares_its_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv(gpus.VISIBLE, "1")
    monkeypatch.setenv(gpus.TAKEN, "1")
    gpus.take(1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("given", "locks"), [("3", 0), (None, 1)])
def test_a_scheduler_that_gives_cards_is_believed(
    tmp_path: Path, given: str | None, locks: int
) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "SLURM_JOB_ID": "7"}
    environment.pop(gpus.VISIBLE, None)
    if given is not None:
        environment[gpus.VISIBLE] = given
    code = "from difftransformer.machine import gpus; gpus.pool = lambda: ['0']; gpus.take()"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert len(list(tmp_path.iterdir())) == locks


def test_jobs_of_one_allocation_share_out_its_cards(start: Start) -> None:
    held = {cards(start(SLURM_JOB_ID="7")) for _ in range(2)}
    assert held == {"0", "1"}
    assert waits(start(alone=True, SLURM_JOB_ID="7")).count("process") == 2
    # Each allocation may count its cards from 0: those of another are others.
    assert {cards(start(SLURM_JOB_ID="8")) for _ in range(2)} == held


def test_what_is_timed_is_alone_on_the_one_card_of_an_allocation(start: Start) -> None:
    given = {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "3"}
    assert cards(start(sharing="2", alone=True, **given)) == "3"
    assert waits(start(sharing="2", **given)).count("process") == 1


def test_more_than_there_are_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpus.VISIBLE, "0,1")
    monkeypatch.delenv(gpus.TAKEN, raising=False)
    with pytest.raises(UserError, match="3 GPUs are requested and 2 are visible"):
        gpus.take(3)


def test_no_cards_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv(gpus.VISIBLE, "")
    gpus.take(1)
    assert not list(tmp_path.iterdir())


def planted_link(place: Path, elsewhere: Path) -> None:
    place.symlink_to(elsewhere)


def planted_dangling_link(place: Path, elsewhere: Path) -> None:
    place.symlink_to(elsewhere / "not there")


def planted_open_folder(place: Path, elsewhere: Path) -> None:
    place.mkdir()
    place.chmod(0o777)


def planted_file(place: Path, elsewhere: Path) -> None:
    place.touch()


@pytest.mark.parametrize(
    "plant", [planted_link, planted_dangling_link, planted_open_folder, planted_file]
)
def test_a_lock_folder_that_others_made_is_refused(
    plant: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may write to /tmp, where its name can be foreseen."""
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    mine.mkdir()
    shared.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    monkeypatch.setattr(gpus, "pool", lambda: ["0"])
    for name in (gpus.TAKEN, gpus.SHARED, gpus.VISIBLE, "LOCAL_RANK", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    place = shared / f"difftransformer-gpus-{os.getuid()}"
    plant(place, mine)
    with pytest.raises(
        UserError, match=f"^{place}: must be a folder of yours, writable only by you: .*TMPDIR$"
    ):
        gpus.take(1)
    assert not list(mine.iterdir())
