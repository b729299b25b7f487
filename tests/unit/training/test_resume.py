"""A training stopped at any moment ends in the bytes of one that never was."""

import json
import logging
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from stopping import OUTPUTS, assert_same_outcome, checkpoints, start, wait_until
from tiny_training import Train, make_run_config, train_in

from difftransformer.errors import CheckpointError
from difftransformer.models.linear import MATMUL, onednn_works
from difftransformer.provenance.result import read_result
from difftransformer.training import trainer
from difftransformer.training.checkpoint import TrainState
from difftransformer.training.interrupt import catch_stop_signals


@pytest.mark.parametrize("variant", ["softmax", "diff_v1"])
def test_killed_again_and_again_ends_in_the_same_bytes(
    train: Train, tmp_path: Path, variant: str
) -> None:
    run_config = make_run_config(
        variant, steps=121, log_every=7, validate_every=20, checkpoint_every=3
    )
    undisturbed = train(run_config, "undisturbed")
    moment, killed, kills = random.Random(variant), tmp_path / "killed", 0
    for target in (9, 36, 63):  # let it come this far, then kill it at a random moment after
        process = start(train, run_config, "killed")
        wait_until(lambda goal=target: max(checkpoints(killed), default=0) >= goal, process)
        time.sleep(moment.uniform(0.0, 0.03))
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    assert kills == 3
    assert not (killed / "out" / "training.json").exists()
    train(run_config, "killed")
    assert_same_outcome(undisturbed, killed)


@pytest.mark.parametrize("cooldown", [None, 20])
def test_killed_on_recall_data_ends_in_the_same_bytes(
    train: Train, tmp_path: Path, recall: Path, cooldown: int | None
) -> None:
    probe = {
        "needles": [1, 2],
        "samples": 8,
        "every": 5,
        "learned_needles": 2,
        "learned_threshold": 1e-9,
    }
    run_config = make_run_config(
        steps=31, seq_len=24, probe=probe, checkpoint_every=4, micro_batch_size=4,
        cooldown_after_learning=cooldown,
    )  # fmt: skip
    undisturbed = train(run_config, "undisturbed", dataset=recall)
    process = start(train, run_config, "killed", dataset=recall)
    wait_until(lambda: max(checkpoints(tmp_path / "killed"), default=0) >= 12, process)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    train(run_config, "killed", dataset=recall)
    assert_same_outcome(undisturbed, tmp_path / "killed")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    return train_in(tmp_path_factory.mktemp("undisturbed"), text)(make_run_config(steps=150))


def state_of(folder: Path) -> dict[str, Any]:
    """What the newest checkpoint says beside its tensors."""
    actual: dict[str, Any] = json.loads(
        (max((folder / "state").glob("checkpoint-*")) / "state.json").read_text()
    )
    return actual


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_stop_signal_writes_a_checkpoint_and_exits_as_resumable(
    train: Train, undisturbed: Path, tmp_path: Path, number: signal.Signals
) -> None:
    run_config = make_run_config(
        steps=150
    )  # no periodic checkpoints: the one there is, is the signal's
    stopped = tmp_path / "stopped"
    process = start(train, run_config, "stopped")
    wait_until((stopped / "state" / "progress.json").exists, process)
    time.sleep(0.05)
    os.kill(process.pid or 0, number)
    process.join()
    assert process.exitcode == os.EX_TEMPFAIL == 75
    assert len(checkpoints(stopped)) == 1
    assert checkpoints(stopped)[0] < 150
    train(run_config, "stopped")
    assert_same_outcome(undisturbed, stopped)


def test_a_resumed_training_counts_the_time_of_all_its_attempts(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = train(make_run_config(steps=9, checkpoint_every=5), "run")
    assert 0 < state_of(first)["seconds"] < 60
    shutil.rmtree(max((first / "state").glob("checkpoint-*")))
    restore = trainer.Trainer.restore

    def long_ago(self: trainer.Trainer, train_state: TrainState) -> None:
        train_state.metadata["seconds"] = 1000.0
        restore(self, train_state)

    monkeypatch.setattr(trainer.Trainer, "restore", long_ago)
    again = train(make_run_config(steps=9, checkpoint_every=5), "run")
    assert 1000 < read_result(again / "out" / "training.json").provenance.seconds < 1060
    assert 1000 < state_of(again)["seconds"] < 1060


def test_a_scheduler_may_say_stop_as_often_as_it_likes(train: Train, tmp_path: Path) -> None:
    process = start(train, make_run_config(steps=150), "stopped")
    wait_until((tmp_path / "stopped" / "state" / "progress.json").exists, process)
    while process.is_alive():
        os.kill(process.pid or 0, signal.SIGTERM)
        time.sleep(0.002)
    process.join()
    assert process.exitcode == os.EX_TEMPFAIL
    assert len(checkpoints(tmp_path / "stopped")) == 1


def test_a_checkpoint_of_a_gpu_goes_on_elsewhere_and_says_so(
    train: Train, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_config, made = make_run_config(steps=20, checkpoint_every=6), trainer.rng_tensors
    with monkeypatch.context() as patch:
        generator = {"rng.cuda": torch.zeros(16, dtype=torch.uint8)}
        patch.setattr(trainer, "rng_tensors", lambda device: made(device) | generator)
        folder = train(run_config)
    before = {name: (folder / "out" / name).read_bytes() for name in OUTPUTS}
    shutil.rmtree(folder / "out")
    shutil.rmtree(folder / "state" / "checkpoint-00000020")
    train(run_config)
    assert "made on cuda, this process computes on cpu" in caplog.text
    assert before == {name: (folder / "out" / name).read_bytes() for name in OUTPUTS}


@pytest.mark.skipif(not onednn_works(), reason="torch has no oneDNN matmul here")
def test_a_training_resumed_by_another_matmul_backend_says_so(
    train: Train, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_config = make_run_config(steps=20, checkpoint_every=6)

    def trained(backend: str) -> list[bytes]:
        monkeypatch.setenv(MATMUL, backend)
        shutil.rmtree(tmp_path / "run" / "out", ignore_errors=True)
        shutil.rmtree(tmp_path / "run" / "state" / "checkpoint-00000020", ignore_errors=True)
        train(run_config)
        result = read_result(tmp_path / "run" / "out" / "training.json")
        assert result.settings["resolved"]["matmul_backend"] == backend
        return [(tmp_path / "run" / "out" / name).read_bytes() for name in OUTPUTS]

    assert trained("torch") == trained("torch")
    assert not [line for line in caplog.records if line.levelno >= logging.WARNING]
    trained("onednn")
    assert "made with matmul backend torch, this process uses onednn" in caplog.text
    assert f"{MATMUL}=torch keeps them" in caplog.text


def test_finished_run_is_published_again_without_training(train: Train) -> None:
    run_config = make_run_config(steps=20)
    folder = train(run_config)
    before = {name: (folder / "out" / name).read_bytes() for name in OUTPUTS}
    checkpoint = (folder / "state" / "checkpoint-00000020" / "sums.json").stat().st_mtime_ns
    shutil.rmtree(folder / "out")
    train(run_config)
    assert before == {name: (folder / "out" / name).read_bytes() for name in OUTPUTS}
    assert (folder / "state" / "checkpoint-00000020" / "sums.json").stat().st_mtime_ns == checkpoint


def test_state_of_another_run_is_refused(train: Train) -> None:
    train(make_run_config())
    with pytest.raises(CheckpointError, match="other settings, data, seed or code"):
        train(make_run_config(), seed=1)


def test_finished_run_restarts_when_forced(
    train: Train, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_config = make_run_config(checkpoint_every=3)

    def output(**options: bool) -> str:
        caplog.clear()
        with caplog.at_level(logging.INFO):
            train(run_config, **options)
        return caplog.text

    with monkeypatch.context() as patch:
        refused = Mock(side_effect=CheckpointError)
        patch.setattr("difftransformer.training.run.publish", refused)
        with pytest.raises(CheckpointError):
            train(run_config)
    again = output(from_scratch=True)  # it never finished: what it has is not thrown away
    assert "resuming from the checkpoint of step 8" in again and "from scratch" not in again
    again = output()
    assert (
        "resuming from the checkpoint of step 8" in again
        and "without training; force the rule" in again
    )
    again = output(from_scratch=True)
    assert "starting from scratch" in again and "resuming" not in again


@pytest.mark.parametrize("requested", [True, False])
def test_stop_signals_are_ignored_after_a_stop_request(requested: bool) -> None:
    numbers = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        with catch_stop_signals() as request:
            if requested:
                os.kill(os.getpid(), signal.SIGTERM)
        assert request.signal == ("SIGTERM" if requested else None)
        after = {number: signal.getsignal(number) for number in numbers}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    ignored = dict.fromkeys(numbers[:2], signal.SIG_IGN) if requested else {}
    assert after == before | ignored
