"""Points that a training logs while it runs, and after a kill."""

import multiprocessing
from collections import Counter
from pathlib import Path

from stopping import wait_until
from tiny_training import Train, column, make_run_config

from difftransformer.tracking.history import HISTORY_FILE, read_records
from difftransformer.tracking.tracker import RunTracker


def logged(state: Path) -> Counter[tuple[str, int]]:
    """How often the history on the disk has each point."""
    if not (state / HISTORY_FILE).exists():
        return Counter()
    result = (record for record in read_records(state)[0] if record["kind"] == "metrics")
    return Counter((name, record["step"]) for record in result for name in record["values"])


def test_without_checkpoints_points_arrive_while_it_runs_and_once(
    train: Train, tmp_path: Path
) -> None:
    state, run_config = (
        tmp_path / "run" / "state",
        make_run_config(steps=300, checkpoint_every=None),
    )

    def attempt() -> None:
        tracker = RunTracker(
            state, stage="pretrain", name="a", job_id="j", flush_every=0.0, system_every=0.0
        )
        train(run_config, tracker=tracker)
        tracker.close("FINISHED")

    process = multiprocessing.get_context("fork").Process(target=attempt)
    process.start()
    wait_until(lambda: ("loss", 6) in logged(state), process)
    process.kill()
    process.join()
    assert not (tmp_path / "run" / "out").exists()
    assert not list(state.glob("checkpoint-*"))
    attempt()
    points = logged(state)
    assert max(points.values()) == 1
    steps = sorted(step for name, step in points if name == "loss")
    assert steps == column(tmp_path / "run", "step")
    assert ("tokens_per_second", 6) in points
