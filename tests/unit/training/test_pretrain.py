"""A run that continues a parent run: its initial weights and its errors."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from stopping import assert_same_outcome, checkpoints, start, wait_until
from tiny_training import Train, make_run_config

from difftransformer.config.run import RunConfig
from difftransformer.convert.checkpoint import load_model
from difftransformer.data.loader import BatchLoader
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import CheckpointError, ConfigError
from difftransformer.models.loss import token_losses
from difftransformer.tracking.tracker import NullTracker
from difftransformer.training.pretrain import pretrain


def longer(variant: str = "diff_v1", **training: Any) -> RunConfig:
    """The parent's run at four times the length and another theta."""
    short = make_run_config(variant, **({"seq_len": 64, "batch_size": 4, "lr": 2.5e-3} | training))
    model = replace(short.model, rope_theta=80000.0, max_positions=64)
    return short.model_copy(update={"run": f"long_{variant}", "init_from": variant, "model": model})


@pytest.fixture
def parent(train: Train) -> Path:
    return train(make_run_config(), "parent") / "out"


@pytest.fixture
def extend(tmp_path: Path, text: Path, parent: Path) -> Train:
    """Extend in ``tmp_path/name`` (folders out and state) and give that folder."""

    def run(run_config: RunConfig, name: str = "long", **options: Any) -> Path:
        folder = tmp_path / name
        defaults = {"model": parent, "dataset": text, "seed": 0, "tracker": NullTracker()}
        pretrain(
            run_config,
            output=folder / "out",
            state=folder / "state",
            threads=1,
            code="unit",
            **(defaults | options),
        )
        return folder

    return run


def result(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "out" / "training.json").read_text()))


def test_it_starts_from_the_weights_of_its_parent(extend: Train, parent: Path, text: Path) -> None:
    run_config = longer(steps=1, warmup_steps=0, log_every=1)
    folder = extend(run_config)
    logged = float((folder / "out" / "history.csv").read_text().splitlines()[1].split(",")[2])
    model = load_model(parent)
    model.config = run_config.model
    model._rotary.theta = run_config.model.rope_theta
    batch = BatchLoader(
        PackedDataset.open(text), "train", batch_size=4, seq_len=64, seed=0
    ).next_batch()
    with torch.no_grad():
        hidden = model.hidden_states(batch[:, :-1]).flatten(0, 1)
        losses = token_losses(hidden, model.output_weight, batch[:, 1:].flatten(), 1024)
    assert logged == pytest.approx(float(losses.mean()), rel=1e-5)


def test_the_model_is_the_longer_one_and_says_where_it_comes_from(
    extend: Train, parent: Path
) -> None:
    folder = extend(longer())
    model = load_model(folder / "out").config
    assert (model.rope_theta, model.max_positions) == (80000.0, 64)
    actual = result(folder)
    assert actual["job_id"].startswith("pretrain-long_diff_v1-0-")
    assert actual["settings"]["upstream"] == [result(parent.parent)["job_id"]]
    assert sorted(p.name for p in (folder / "out").iterdir()) == sorted(
        p.name for p in parent.iterdir()
    )


def test_the_parent_is_part_of_its_identity(extend: Train, train: Train, text: Path) -> None:
    original = result(extend(longer(), "one"))
    again = result(extend(longer(), "again"))
    assert original["job_id"] == again["job_id"]
    other = train(make_run_config(lr=5e-3), "other") / "out"
    assert result(extend(longer(), "two", model=other))["job_id"] != original["job_id"]
    with pytest.raises(CheckpointError, match="other settings, data, seed or code"):
        extend(longer(), "one", model=other)


def test_killed_run_resumes_to_the_same_bytes(extend: Train, tmp_path: Path) -> None:
    run_config = longer(steps=61, checkpoint_every=3, validate_every=20)
    undisturbed = extend(run_config, "undisturbed")
    for goal in (6, 24):
        process = start(extend, run_config, "killed")
        wait_until(lambda n=goal: max(checkpoints(tmp_path / "killed"), default=0) >= n, process)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "out" / "training.json").exists()
    extend(run_config, "killed")
    assert_same_outcome(undisturbed, tmp_path / "killed")


def test_incompatible_parent_gives_one_error_line(
    extend: Train, train: Train, parent: Path, tmp_path: Path
) -> None:
    wider = longer()
    wider = wider.model_copy(update={"model": replace(wider.model, d_model=64)})
    other_attention = longer("softmax").model_copy(update={"init_from": "diff_v1"})
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    other_ids = tmp_path / "other"
    shutil.copytree(parent, other_ids)
    (other_ids / "tokenizer.json").write_text("another")
    for run_config, options, kind, message in (
        (make_run_config(), {}, ConfigError, "has no init_from"),
        (wider, {}, ConfigError, "model.d_model is 64, in run diff_v1 it is 32"),
        (other_attention, {}, ConfigError, "model.attention.variant is softmax, in run diff_v1"),
        (longer(), {"seed": 1}, CheckpointError, "with seed 0, expected diff_v1 with seed 1"),
        (longer("softmax"), {}, CheckpointError, "holds run diff_v1.*expected softmax"),
        (longer(), {"model": unfinished}, CheckpointError, "training has not finished"),
        (longer(), {"model": tmp_path / "no"}, CheckpointError, "no such model folder"),
        (longer(), {"model": other_ids}, CheckpointError, "was trained with another tokenizer"),
    ):
        with pytest.raises(kind, match=message) as error:
            extend(run_config, "refused", **options)
        assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=r"continues diff_v1: give that training\.json"):
        train(longer(), "fresh")


def test_two_stages_follow_each_other(train: Train, text: Path, tmp_path: Path) -> None:
    parent = train(make_run_config(), "parent") / "out"
    for stage, before in (("first", "diff_v1"), ("second", "first")):
        # a rate too small to move float32 weights shows what training started from
        run_config = make_run_config(steps=2, lr=1e-30, warmup_steps=0, weight_decay=0.0)
        run_config = run_config.model_copy(update={"run": stage, "init_from": before})
        output = tmp_path / stage
        pretrain(
            run_config, model=parent, dataset=text, output=output,
            state=tmp_path / f"{stage}_state", seed=0, threads=1, tracker=NullTracker(),
            code="unit",
        )  # fmt: skip
        actual = json.loads((output / "training.json").read_text())
        above = json.loads((parent / "training.json").read_text())
        assert actual["job_id"].startswith(f"pretrain-{stage}-0-")
        assert actual["settings"]["upstream"] == [above["job_id"]]
        ours, theirs = (load_file(folder / "model.safetensors") for folder in (output, parent))
        assert all(tensor.equal(theirs[name]) for name, tensor in ours.items())
        parent = output
