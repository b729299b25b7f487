"""Intermediate checkpoints: their weights, their publication, and a resume after a kill."""

import signal
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from safetensors.torch import load_file
from stopping import assert_same_outcome, checkpoints, start, wait_until
from tiny_training import Train, make_run_config

from difftransformer.training import checkpoint
from difftransformer.training.checkpoint import CheckpointStore, TrainState

INTERMEDIATE = ["step-00000010.safetensors", "step-00000020.safetensors"]


def intermediate_checkpoints(folder: Path) -> dict[str, bytes]:
    actual = sorted((folder / "out" / "intermediate").glob("*.safetensors"))
    return {path.name: path.read_bytes() for path in actual}


def test_intermediate_weights_are_those_of_their_step(train: Train) -> None:
    folder = train(make_run_config(steps=40, save_checkpoints_at=[0.5, 0.25], checkpoint_every=20))
    assert list(intermediate_checkpoints(folder)) == INTERMEDIATE
    ours = load_file(folder / "out" / "intermediate" / INTERMEDIATE[1])
    state = load_file(folder / "state" / "checkpoint-00000020" / "tensors.safetensors")
    assert ours and all(tensor.equal(state[f"model.{name}"]) for name, tensor in ours.items())
    final = load_file(folder / "out" / "model.safetensors")
    assert ours.keys() == final.keys()
    assert not all(tensor.equal(final[name]) for name, tensor in ours.items())


def test_without_intermediate_checkpoints_none_are_published(train: Train) -> None:
    assert intermediate_checkpoints(train(make_run_config())) == {}


def test_run_killed_after_an_intermediate_checkpoint_ends_in_the_same_bytes(
    train: Train, tmp_path: Path
) -> None:
    run_config = make_run_config(steps=101, save_checkpoints_at=[0.1, 0.5], checkpoint_every=8)
    undisturbed = train(run_config, "undisturbed")
    process = start(train, run_config, "killed")
    wait_until(lambda: max(checkpoints(tmp_path / "killed"), default=0) >= 16, process)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    train(run_config, "killed")
    assert_same_outcome(undisturbed, tmp_path / "killed")
    assert intermediate_checkpoints(undisturbed) == intermediate_checkpoints(tmp_path / "killed")


def test_intermediate_weights_wait_for_the_pending_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several processes talk about one file at a time."""
    written: list[str] = []

    def slowly(folder: Path, train_state: TrainState) -> None:
        time.sleep(0.3)
        written.append("checkpoint")

    with CheckpointStore(tmp_path, keep=2, identity="one") as store:
        monkeypatch.setattr(store, "_write", slowly)
        monkeypatch.setattr(checkpoint, "save_weights", lambda *_: written.append("weights"))
        store.save(TrainState(8, {}, {}), async_=True)
        store.save_intermediate(9, Mock())
    assert written == ["checkpoint", "weights"]


@pytest.mark.parametrize("shares", [[0.5, 0.51], [0.01], [0.99]])
def test_shares_must_be_distinct_steps_before_the_last(shares: list[float]) -> None:
    with pytest.raises(
        ValueError, match=r"save_checkpoints_at .* of 8 steps are not distinct steps"
    ):
        make_run_config(save_checkpoints_at=shares)


def test_publishing_again_removes_the_old_result_first(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_config = make_run_config()
    result = train(run_config) / "out" / "training.json"
    assert result.is_file()
    with monkeypatch.context() as patch:
        killed = Mock(side_effect=KeyboardInterrupt)
        patch.setattr("difftransformer.training.outputs.save_language_model", killed)
        with pytest.raises(KeyboardInterrupt):
            train(run_config)
    assert not result.exists()
    train(run_config)
    assert result.is_file()
