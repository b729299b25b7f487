"""The training step: its log when the job is requeued."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from difftransformer.cli import training
from difftransformer.cli.step import Files, Step
from difftransformer.machine import slurm
from difftransformer.training.interrupt import Interrupted


@pytest.mark.parametrize("signal", [slurm.TIME_LIMIT_SIGNAL, "SIGTERM"])
def test_a_training_that_goes_back_to_the_queue_keeps_its_log(
    signal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, requeue = tmp_path / "log", Mock()
    step = Step("pretrain", tmp_path / "run.json", Files(outputs={}), "", 1, log)
    config = SimpleNamespace(training=SimpleNamespace(world_size=1))

    def stopped(*_: Any) -> None:
        log.write_text("step 1/9\n")
        raise Interrupted("stopped at step 1/9", signal)

    monkeypatch.setattr(slurm, "requeue", requeue)
    monkeypatch.setattr(Step, "read", lambda *_: config)
    monkeypatch.setattr(training, "_identity", Mock())
    monkeypatch.setattr(training, "_call", Mock())
    monkeypatch.setattr(training, "_train_here", stopped)
    with pytest.raises(Interrupted):
        training.train(step)
    assert requeue.called == (signal == slurm.TIME_LIMIT_SIGNAL)
    assert log.read_text().startswith("step 1/9\n")
