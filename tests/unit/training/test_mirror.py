"""Mirrored state: a machine without local state resumes from the copy to the same bytes."""

import json
import logging
import shutil
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from fsspec.implementations.local import LocalFileSystem
from stopping import assert_same_outcome, checkpoints, start, wait_until
from tiny_training import Train, make_run_config, train_in

from difftransformer.errors import CheckpointError
from difftransformer.provenance.checksums import file_sha256
from difftransformer.tracking.tracker import NullTracker
from difftransformer.training import run as training
from difftransformer.training.mirror import Mirror, forget_finished
from difftransformer.training.process_group import ProcessGroup
from difftransformer.training.state_folder import FINISHED

LONG = {"steps": 101, "checkpoint_every": 20, "save_checkpoints_at": [0.3]}


class Held(NullTracker):
    """What a training that is to be killed tells: it waits there, with steps to do.

    Each of its checkpoints is copied before the next one, however fast the steps are.
    """

    def __init__(self, copy: Path) -> None:
        self._copy = copy

    def log_metrics(self, values: dict[str, float], step: int = 0) -> None:
        wanted, deadline = (step - 1) // 20 * 20, time.monotonic() + 60
        while max(map(step_of, complete_checkpoints(self._copy)), default=0) < wanted:
            assert time.monotonic() < deadline, f"no copy of the checkpoint of step {wanted}"
            time.sleep(0.01)
        if step >= 70:
            time.sleep(600)


def step_of(checkpoint: str) -> int:
    return int(checkpoint[-8:])


def checkpoint_names(copy: Path) -> list[str]:
    return sorted(path.name for path in copy.glob("checkpoint-*"))


def complete_checkpoints(copy: Path) -> list[str]:
    """Names of the checkpoints whose sums, which come last, are there to their end."""
    return [name for name in checkpoint_names(copy) if is_json(copy / name / "sums.json")]


def is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text())
    except (FileNotFoundError, ValueError):  # not there yet, or half of it
        return False
    return True


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    return train_in(tmp_path_factory.mktemp("undisturbed"), text)(make_run_config(**LONG))


@pytest.fixture
def lost(train: Train, tmp_path: Path) -> tuple[Path, Path]:
    """Folder of a training whose machine was lost with all on it, and the copy of its state."""
    copy = tmp_path / "copies" / "one"
    process = start(
        train, make_run_config(**LONG), "lost", mirror=f"file://{copy}", tracker=Held(copy)
    )
    wait_until(lambda: len(complete_checkpoints(copy)) >= 2, process)
    process.kill()
    process.join()
    shutil.rmtree(tmp_path / "lost")
    return tmp_path / "lost", copy


def test_another_machine_resumes_to_the_same_bytes(
    train: Train, undisturbed: Path, lost: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    folder, copy = lost
    newest = step_of(complete_checkpoints(copy)[-1])
    caplog.set_level(logging.INFO)
    train(make_run_config(**LONG), "lost", mirror=f"file://{copy}")
    assert f"resuming from the checkpoint of step {newest}" in caplog.text
    assert_same_outcome(undisturbed, folder)
    weights = "out/intermediate/step-00000030.safetensors"
    assert (folder / weights).read_bytes() == (undisturbed / weights).read_bytes()
    assert complete_checkpoints(copy) == checkpoint_names(copy)
    assert checkpoint_names(copy)[-1] == f"checkpoint-{LONG['steps']:08d}"
    assert (copy / FINISHED).exists() and len(checkpoint_names(copy)) <= 2


def test_damaged_copy_is_skipped(
    train: Train, undisturbed: Path, lost: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    folder, copy = lost
    before, newest = complete_checkpoints(copy)[-2:]
    tensors = copy / newest / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-9])
    for later in set(checkpoint_names(copy)) - {before, newest}:
        assert later > newest  # half there, for the machine was lost in the middle of it
    caplog.set_level(logging.INFO)
    train(make_run_config(**LONG), "lost", mirror=f"file://{copy}")
    assert f"{newest} is damaged" in caplog.text
    assert f"resuming from the checkpoint of step {step_of(before)}" in caplog.text
    assert_same_outcome(undisturbed, folder)


def test_changed_intermediate_weights_are_not_published(
    train: Train, lost: tuple[Path, Path]
) -> None:
    (weights,) = (lost[1] / "intermediate").glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[::-1])
    with pytest.raises(CheckpointError, match="does not match its checksum: delete file://"):
        train(make_run_config(**LONG), "lost", mirror=f"file://{lost[1]}")


def test_partial_copy_of_intermediate_weights_is_skipped(
    train: Train, undisturbed: Path, lost: tuple[Path, Path]
) -> None:
    folder, copy = lost
    (weights,) = (copy / "intermediate").glob("*.safetensors")
    for name in (".step-00000060.4711.partial.safetensors", "step-00000060.safetensors"):
        (copy / "intermediate" / name).write_bytes(weights.read_bytes()[:100])
    train(make_run_config(**LONG), "lost", mirror=f"file://{copy}")
    assert_same_outcome(undisturbed, folder)
    assert [path.name for path in folder.glob("out/intermediate/*.safetensors")] == [weights.name]


def test_a_finished_training_is_published_again_elsewhere_and_forced_it_starts_from_scratch(
    train: Train, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_config, url = make_run_config(), f"file://{tmp_path}/copy"
    undisturbed = train(run_config, "one", mirror=url)
    caplog.set_level(logging.INFO)
    again = train(run_config, "two", mirror=url)
    assert "had finished: publishing it again without training" in caplog.text
    assert_same_outcome(undisturbed, again)
    caplog.clear()
    from_scratch = train(run_config, "three", mirror=url, from_scratch=True)
    assert "was forced: starting from scratch" in caplog.text and "resuming" not in caplog.text
    assert_same_outcome(undisturbed, from_scratch)


def test_resumes_from_the_copy_when_all_local_checkpoints_are_damaged(
    train: Train, undisturbed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = tmp_path / "copy"
    process = start(
        train, make_run_config(**LONG), "one", mirror=f"file://{copy}", tracker=Held(copy)
    )
    wait_until(lambda: len(complete_checkpoints(copy)) >= 2, process)
    process.kill()
    process.join()
    for tensors in (tmp_path / "one" / "state").glob("checkpoint-*/tensors.safetensors"):
        tensors.write_bytes(tensors.read_bytes()[:-9])
    newest = step_of(complete_checkpoints(copy)[-1])
    caplog.set_level(logging.INFO)
    train(make_run_config(**LONG), "one", mirror=f"file://{copy}")
    assert "is damaged" in caplog.text
    assert f"resuming from the checkpoint of step {newest}" in caplog.text
    assert_same_outcome(undisturbed, tmp_path / "one")


def test_complete_copies_of_intermediate_weights_are_not_rewritten(
    train: Train, lost: tuple[Path, Path]
) -> None:
    """Written anew, one would be half there for a while, beside its sum."""
    folder, copy = lost
    (mirrored,) = (copy / "intermediate").glob("*.safetensors")
    before = mirrored.stat().st_mtime_ns
    train(make_run_config(**LONG), "lost", mirror=f"file://{copy}")
    assert mirrored.stat().st_mtime_ns == before
    (published,) = folder.glob("out/intermediate/*.safetensors")
    assert mirrored.read_bytes() == published.read_bytes()


def test_a_copy_of_other_weights_is_replaced_and_its_sum_goes_first(
    train: Train, tmp_path: Path
) -> None:
    run_config, copy = (
        make_run_config(steps=40, save_checkpoints_at=[0.5], checkpoint_every=20),
        tmp_path / "copy",
    )
    name = "step-00000020.safetensors"
    (copy / "intermediate").mkdir(parents=True)
    (copy / "intermediate" / name).write_bytes(b"of another time")
    (copy / "intermediate" / f"{name}.sha256").write_text("0" * 64)
    published = train(run_config, "one", mirror=str(copy)) / "out" / "intermediate" / name
    assert (copy / "intermediate" / name).read_bytes() == published.read_bytes()
    assert (copy / "intermediate" / f"{name}.sha256").read_text() == file_sha256(published)


def test_rewritten_intermediate_weights_are_copied_again(tmp_path: Path) -> None:
    """A training from scratch finds those of the one before, and comes to its own later."""
    state, copy, weights_file = (
        tmp_path / "state",
        tmp_path / "copy",
        "intermediate/step-00000001.safetensors",
    )
    mirror = Mirror(state, str(copy), ProcessGroup())
    (state / "intermediate").mkdir()
    with mirror.copying():
        for step, weights in enumerate((b"of the one before", b"its own")):
            (state / weights_file).write_bytes(weights)
            aside = state / f"checkpoint-0000000{step}.partial"
            aside.mkdir()
            (aside / "sums.json").write_text("{}")
            aside.rename(aside.with_suffix(""))
            there = copy / f"checkpoint-0000000{step}/sums.json"
            while not there.exists():
                time.sleep(0.01)
    assert (copy / weights_file).read_bytes() == b"its own"
    assert (copy / f"{weights_file}.sha256").read_text() == file_sha256(state / weights_file)


def test_a_forced_training_that_could_not_be_published_is_not_trained_again(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_config, url = make_run_config(), f"file://{tmp_path}/copy"
    with monkeypatch.context() as patch:
        patch.setattr(training, "publish", Mock(side_effect=CheckpointError("full: make room")))
        with pytest.raises(CheckpointError, match="make room"):
            train(run_config, "one", mirror=url, from_scratch=True)
    assert not (tmp_path / "copy" / FINISHED).exists()
    caplog.set_level(logging.INFO)
    train(run_config, "one", mirror=url, from_scratch=True)
    assert "resuming from the checkpoint of step 8" in caplog.text
    assert (tmp_path / "copy" / FINISHED).exists()


def test_missing_bucket_is_reported(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(*_: object) -> None:
        raise FileNotFoundError("The specified bucket does not exist")

    monkeypatch.setattr(LocalFileSystem, "put_file", gone)
    train(make_run_config(), "one", mirror=f"file://{tmp_path}/copy")
    assert "cannot be written (FileNotFoundError: The specified bucket" in caplog.text


def test_an_older_copy_is_left_where_it_is(
    train: Train, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = tmp_path / "copy"
    train(make_run_config(), "one", mirror=str(copy))
    shutil.copytree(copy / "checkpoint-00000008", copy / "checkpoint-00000004")
    caplog.set_level(logging.INFO)
    train(make_run_config(), "one", mirror=str(copy))
    assert "downloaded checkpoint" not in caplog.text and checkpoints(tmp_path / "one") == [8]


def test_newer_copies_are_not_removed(train: Train, tmp_path: Path) -> None:
    """Who is taken for lost and is not copies what it has, and removes nothing newer."""
    copy = tmp_path / "copy"
    train(make_run_config(), "one")
    newer, older = copy / "checkpoint-00000012", copy / "checkpoint-00000002"
    for folder in (newer, older):
        folder.mkdir(parents=True)
        (folder / "state.json").write_text("{")
    train(make_run_config(), "one", mirror=str(copy))
    assert complete_checkpoints(copy) == ["checkpoint-00000008"]
    assert newer.is_dir() and not older.is_dir()


def test_state_of_finished_and_stored_runs_is_deleted(train: Train, tmp_path: Path) -> None:
    root = tmp_path / "copies"
    for run, seed in (("diff", "0"), ("diff", "1")):
        url = f"file://{root}/smoke/pretrain/{run}/{seed}/0123"
        train(make_run_config(), f"{run}{seed}", mirror=url)
    going_on = root / "smoke" / "pretrain" / "long" / "0" / "4567"
    shutil.copytree(root / "smoke/pretrain/diff/0/0123", going_on)
    (going_on / FINISHED).unlink()
    stored = {("diff", "0"), ("long", "0")}
    assert forget_finished(str(root), "smoke", lambda *run_and_seed: run_and_seed in stored) == 1
    left = sorted(str(path.relative_to(root / "smoke/pretrain")) for path in root.glob("*/*/*/*/*"))
    assert left == ["diff/1/0123", "long/0/4567"]
    assert forget_finished(str(tmp_path / "nothing"), "smoke", lambda *_: True) == 0


def test_nothing_is_copied_without_a_url(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = train(make_run_config(), "two", mirror=f"{tmp_path}/copy")
    opened = Mock(side_effect=AssertionError)
    monkeypatch.setattr("difftransformer.training.mirror.open_storage", opened)
    actual = train(make_run_config(), "one")
    assert_same_outcome(actual, expected)
    assert not opened.called


@pytest.mark.parametrize(
    ("url", "output"),
    [
        ("file:///proc/nowhere", "cannot be written"),
        ("nosuch://bucket/state", "Protocol not known: nosuch"),
    ],
)
def test_unusable_url_gives_one_error_line(
    url: str, output: str, train: Train, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError) as refused:
        train(make_run_config(), "one", mirror=url)
    assert f"{url}: cannot be written" in str(refused.value) and output in str(refused.value)
    assert "\n" not in str(refused.value) and not (tmp_path / "one" / "out").exists()
