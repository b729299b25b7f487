"""Start a training in its own process, and compare the outputs of trainings."""

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from tiny_training import Train

from difftransformer.config.run import RunConfig

OUTPUTS = ("model.safetensors", "config.json", "history.csv")


def metrics(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "out" / "training.json").read_text())["metrics"])


def assert_same_outcome(actual: Path, expected: Path) -> None:
    for name in OUTPUTS:
        assert (actual / "out" / name).read_bytes() == (expected / "out" / name).read_bytes(), name
    assert metrics(actual) == metrics(expected)


def checkpoints(folder: Path) -> list[int]:
    result = (path.name.removeprefix("checkpoint-") for path in (folder / "state").glob("check*"))
    return sorted(int(name) for name in result if name.isdecimal())


def start(train: Train, run_config: RunConfig, name: str, **options: Any) -> ForkProcess:
    """The same call in a process of its own; forked, since importing torch takes seconds."""

    def target() -> None:
        train(run_config, name, **options)

    process = multiprocessing.get_context("fork").Process(target=target)
    process.start()
    return process


def assert_killed_ends_alike(
    train: Train, run_config: RunConfig, folder: Path, **options: Any
) -> None:
    """Kill an adaptation, resume it, and compare with one that nothing disturbed."""
    undisturbed = train(run_config, "undisturbed", **options)
    process = start(train, run_config, "killed", **options)
    wait_until(lambda: max(checkpoints(folder / "killed"), default=0) >= 8, process)
    os.kill(process.pid or 0, 9)
    process.join()
    assert process.exitcode == -9 and not (folder / "killed/out/training.json").exists()
    train(run_config, "killed", **options)
    assert_same_outcome(undisturbed, folder / "killed")
    expected, actual = (
        folder / name / "out/adapter.safetensors" for name in ("undisturbed", "killed")
    )
    assert expected.read_bytes() == actual.read_bytes()


def wait_until(condition: Callable[[], bool], process: ForkProcess) -> None:
    deadline = time.monotonic() + 120
    while not condition() and process.is_alive():
        assert time.monotonic() < deadline, "the training process hangs"
        time.sleep(0.001)
