"""SIGKILL and SIGTERM of single jobs: the same command resumes to the same bytes."""

import json
import os
import random
import signal
import time
from multiprocessing.context import ForkProcess

import pytest
from attempts import AGAIN, MakeRebuild, Rebuild, wait_until

LAST = ("evaluate", "table")
GRACE = 10.0  # seconds that a scheduler gives


def test_a_training_killed_again_and_again(untrained: Rebuild) -> None:
    moment = random.Random(0)
    for goal in sorted(moment.sample(range(10, 150), 4)):
        untrained.kill_at(goal, moment.uniform(0.0, 0.05))
    assert not untrained.leftovers("runs/diff/0/training.json")
    output = untrained.complete("pretrain", *LAST)
    assert "resuming from the checkpoint of step" in output
    untrained.assert_as_undisturbed()


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(10))
def test_a_training_killed_at_a_random_moment(untrained: Rebuild, seed: int) -> None:
    moment = random.Random(seed)
    if seed == 0:  # while it starts
        untrained.kill_at(0, moment.uniform(0.0, 0.5))
    else:
        untrained.kill_at(moment.randrange(0, 150), moment.uniform(0.0, 0.05))
    reached = untrained.newest_step()
    output = untrained.complete("pretrain", *LAST)
    if reached:
        assert f"resuming from the checkpoint of step {reached}" in output
    untrained.assert_as_undisturbed()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_training_killed_inside_the_write_of_a_checkpoint(untrained: Rebuild, seed: int) -> None:
    goal = random.Random(seed).randrange(20, 150)
    half = "pretrain/diff/0/*/checkpoint-*.partial"

    def kill_in_a_write(process: ForkProcess) -> None:
        wait_until(lambda: any(untrained.state.glob(half)), process, pause=0.0)
        process.kill()

    for _ in range(20):  # until a kill fell between the first byte and the rename
        beyond = lambda: untrained.newest_step() >= goal  # noqa: E731
        untrained.strike("pretrain", beyond, kill_in_a_write, AGAIN)
        if any(untrained.state.glob(half)):
            break
    assert any(untrained.state.glob(half)), "no kill fell into a write"
    before = untrained.newest_step()
    output = untrained.complete("pretrain", *LAST)
    assert f"resuming from the checkpoint of step {before}" in output
    untrained.assert_as_undisturbed()


def test_tokenizing_killed_inside_the_write_of_a_shard(rebuild: MakeRebuild) -> None:
    made = rebuild()
    data, half = made.state / "tokenize", "*/*/.train-0000[1-9].*.partial.bin"
    for _ in range(30):  # until a kill fell between the first byte and the rename
        made.drop("data", "state")
        process = made.start("tokenize")
        wait_until(lambda: any(data.glob(half)), process, pause=0.0)
        process.kill()
        process.join()
        if any(data.glob(half)):
            break
    (leftover,) = data.glob(half)
    finished = {path: path.stat().st_mtime_ns for path in data.glob("*/*/train-*.bin")}
    assert leftover.name.startswith(f".train-{len(finished):05d}.")
    output = made.complete("tokenize")
    assert f"train: reusing {len(finished)} finished shards" in output
    assert finished == {path: path.stat().st_mtime_ns for path in finished}
    made.assert_as_undisturbed()


def test_an_evaluation_and_a_table_killed_at_random_moments(rebuild: MakeRebuild) -> None:
    made, moment = rebuild("evaluations/*/diff", "tables/*"), random.Random(0)
    for rule, part in (("evaluate", "evaluations/*/diff"), ("table", "tables/*")):
        longest = 0.3
        while True:
            process = made.start(rule)
            process.join(moment.uniform(0.02, longest))
            process.kill()
            process.join()
            if process.exitcode == -signal.SIGKILL:
                break
            assert process.exitcode == 0  # it was done before the kill
            made.drop(part)
            longest /= 2
        made.complete(rule)
    made.assert_as_undisturbed()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive)]
)
def test_a_training_told_to_stop_does_so_in_time(untrained: Rebuild, number: int) -> None:
    def ask(process: ForkProcess) -> None:
        os.kill(process.pid or 0, number)
        requested_at = time.monotonic()
        process.join(GRACE)
        assert process.exitcode is not None, f"{time.monotonic() - requested_at:.1f} s"

    status = untrained.strike("pretrain", lambda: untrained.newest_step() >= 30, ask, AGAIN)
    assert status == os.EX_TEMPFAIL
    reached = untrained.newest_step()
    assert reached % 10 != 0 or reached > 30  # a checkpoint of its own
    output = untrained.complete("pretrain", *LAST)
    assert f"resuming from the checkpoint of step {reached}" in output
    untrained.assert_as_undisturbed()


@pytest.mark.exhaustive
def test_older_training_publishes_before_one_with_newer_settings(untrained: Rebuild) -> None:
    older = untrained.start("pretrain")
    wait_until(lambda: untrained.newest_step() >= 10, older)
    os.kill(older.pid or 0, signal.SIGSTOP)  # its workflow was killed
    reader, writer = os.pipe()
    newer = untrained.start([*untrained.calls["pretrain"][:-1], "changed"], stderr=writer)
    os.close(writer)
    time.sleep(5)
    assert newer.is_alive() and not untrained.leftovers("runs/diff/0/training.json")
    os.kill(older.pid or 0, signal.SIGCONT)
    with open(reader, encoding="utf-8") as stream:  # noqa: PTH123
        output = stream.read()
    for process in (older, newer):
        process.join(60)
        assert process.exitcode == 0, output
    assert f"process {older.pid} on" in output and "waiting until it ends" in output
    state = {path.parent.name for path in untrained.state.glob("pretrain/diff/0/*/finished")}
    trained = json.loads((untrained.results / "runs/diff/0/training.json").read_text())
    fingerprint = trained["provenance"]["fingerprint"][:16]
    assert len(state) == 2 and fingerprint in state
    (other,) = state - {fingerprint}
    moments = [
        (untrained.state / f"pretrain/diff/0/{fingerprint_dir}/finished").stat().st_mtime_ns
        for fingerprint_dir in (other, fingerprint)
    ]
    assert moments == sorted(moments)  # what lies there is of who ended last: the newer


@pytest.mark.exhaustive
def test_tokenizing_told_to_stop_goes_on(rebuild: MakeRebuild) -> None:
    parts = ("data",)
    made = rebuild(*parts)

    def ask(process: ForkProcess) -> None:
        process.terminate()
        process.join(GRACE)

    two_shards = lambda: len(made.leftovers("train-*.bin")) >= 2  # noqa: E731
    again = (*parts, "state/tokenize")
    assert made.strike("tokenize", two_shards, ask, again, pause=0.0) == 128 + signal.SIGTERM
    assert not made.leftovers("*.partial*")
    assert "finished shards" in made.complete("tokenize")
    made.assert_as_undisturbed()
