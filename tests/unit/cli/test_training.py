"""What the command of a training does around it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from difftransformer.cli.training import _Asked
from difftransformer.machine import slurm
from difftransformer.training.interrupt import Interrupted


@pytest.mark.parametrize("signal", [slurm.TIME_IS_NEARLY_OVER, "SIGTERM"])
def test_a_training_that_goes_back_to_the_queue_keeps_its_log(
    signal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, requeue = tmp_path / "log", Mock()
    monkeypatch.setattr(slurm, "requeue", requeue)
    asked = _Asked.__new__(_Asked)
    asked.config = SimpleNamespace(training=SimpleNamespace(world=1))

    def stopped(*_: Any) -> None:
        log.write_text("step 1/9\n")
        raise Interrupted("stopped at step 1/9", signal)

    monkeypatch.setattr(asked, "_train", stopped)
    with pytest.raises(Interrupted):
        asked.carry_out(Mock(), tmp_path, "", "off", log)
    assert requeue.called == (signal == slurm.TIME_IS_NEARLY_OVER)
    assert log.read_text().startswith("step 1/9\n")
