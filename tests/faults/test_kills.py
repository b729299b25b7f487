"""SIGKILL and SIGTERM of single jobs: the same command again ends in the undisturbed bytes."""

import os
import random
import signal
import time

import pytest
from attempts import MakeRebuild, Rebuild, wait_until

LAST = ("evaluate", "build_table")
GRACE = 10.0  # seconds that a scheduler gives


def kill(process) -> None:
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def kill_at(rebuild: Rebuild, goal: int, pause: float) -> None:
    """Kill a training ``pause`` seconds after the checkpoint of step ``goal``."""
    process = rebuild.start("pretrain")
    assert wait_until(lambda: rebuild.newest_step() >= goal, process)
    time.sleep(pause)
    kill(process)


def test_a_training_killed_again_and_again(untrained: Rebuild) -> None:
    moment = random.Random(0)
    for goal in sorted(moment.sample(range(10, 150), 4)):
        kill_at(untrained, goal, moment.uniform(0.0, 0.05))
    assert not untrained.leftovers("runs/diff/0/training.json")
    said = untrained.complete("pretrain", *LAST)
    assert "resuming from the checkpoint of step" in said
    untrained.assert_as_undisturbed()


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(10))
def test_a_training_killed_at_a_random_moment(untrained: Rebuild, seed: int) -> None:
    moment = random.Random(seed)
    if seed == 0:  # while it starts
        kill_at(untrained, 0, moment.uniform(0.0, 0.5))
    else:
        kill_at(untrained, moment.randrange(0, 150), moment.uniform(0.0, 0.05))
    reached = untrained.newest_step()
    said = untrained.complete("pretrain", *LAST)
    if reached:
        assert f"resuming from the checkpoint of step {reached}" in said
    untrained.assert_as_undisturbed()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_training_killed_inside_the_write_of_a_checkpoint(untrained: Rebuild, seed: int) -> None:
    goal = random.Random(seed).randrange(20, 150)
    half = "pretrain/diff/0/*/checkpoint-*.partial"
    for _ in range(20):  # until a kill fell between the first byte and the rename
        process = untrained.start("pretrain")
        wait_until(lambda: untrained.newest_step() >= goal, process)
        wait_until(lambda: any(untrained.state.glob(half)), process, pause=0.0)
        kill(process)
        if any(untrained.state.glob(half)):
            break
    assert any(untrained.state.glob(half)), "no kill fell into a write"
    before = untrained.newest_step()
    said = untrained.complete("pretrain", *LAST)
    assert f"resuming from the checkpoint of step {before}" in said
    untrained.assert_as_undisturbed()


def test_tokenising_killed_inside_the_write_of_a_shard(rebuild: MakeRebuild) -> None:
    made = rebuild()
    data, half = made.results / "data" / "stdlib_text", ".train-0000[1-9].*.partial.bin"
    for _ in range(30):  # until a kill fell between the first byte and the rename
        made.drop("data/*/manifest.json", "data/*/*.bin", "data/*/.*", "data/*/*.npy", "state")
        process = made.start("tokenise")
        wait_until(lambda: any(data.glob(half)), process, pause=0.0)
        process.kill()
        process.join()
        if any(data.glob(half)):
            break
    (leftover,) = data.glob(half)
    finished = {path: path.stat().st_mtime_ns for path in data.glob("train-*.bin")}
    assert leftover.name.startswith(f".train-{len(finished):05d}.")
    said = made.complete("tokenise")
    assert f"train: {len(finished)} finished shards are taken over" in said
    assert finished == {path: path.stat().st_mtime_ns for path in finished}
    made.assert_as_undisturbed()


def test_an_evaluation_and_a_table_killed_at_random_moments(rebuild: MakeRebuild) -> None:
    made, moment = rebuild("evaluations/*/diff", "tables/*"), random.Random(0)
    for rule, part in (("evaluate", "evaluations/*/diff"), ("build_table", "tables/*")):
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
    process = untrained.start("pretrain")
    assert wait_until(lambda: untrained.newest_step() >= 30, process)
    os.kill(process.pid or 0, number)
    asked = time.monotonic()
    process.join(GRACE)
    assert process.exitcode == os.EX_TEMPFAIL, f"{time.monotonic() - asked:.1f} s"
    reached = untrained.newest_step()
    assert reached % 10 != 0 or reached > 30  # a checkpoint of its own
    said = untrained.complete("pretrain", *LAST)
    assert f"resuming from the checkpoint of step {reached}" in said
    untrained.assert_as_undisturbed()


def test_tokenising_told_to_stop_goes_on(rebuild: MakeRebuild) -> None:
    made = rebuild("data/*/manifest.json", "data/*/*.bin", "data/*/*.npy")
    process = made.start("tokenise")
    assert wait_until(lambda: len(made.leftovers("train-*.bin")) >= 2, process, pause=0.0)
    process.terminate()
    process.join(GRACE)
    assert process.exitcode == 128 + signal.SIGTERM
    assert not made.leftovers("*.partial*")
    assert "finished shards are taken over" in made.complete("tokenise")
    made.assert_as_undisturbed()
