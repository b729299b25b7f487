"""Continued training: starts from its parent's weights, with other text and the same positions."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tiny_training import Train, make_slice

from difftransformer.errors import ConfigError
from difftransformer.provenance.tracking import NullTracker
from difftransformer.training.continue_training import continue_training
from difftransformer.training.pretrain import pretrain


def test_two_stages_follow_each_other(train: Train, text: Path, tmp_path: Path) -> None:
    parent = train(make_slice(), "parent") / "out"
    for stage, before in (("first", "diff_v1"), ("second", "first")):
        # a rate too small to move float32 weights shows what training started from
        slice = make_slice(steps=2, lr=1e-30, warmup_steps=0, weight_decay=0.0)
        slice = slice.model_copy(update={"run": stage, "init_from": before})
        output = tmp_path / stage
        continue_training(
            slice, model=parent, dataset=text, output=output, state=tmp_path / f"{stage}_state",
            seed=0, threads=1, tracker=NullTracker(), code="unit",
        )  # fmt: skip
        found = json.loads((output / "training.json").read_text())
        above = json.loads((parent / "training.json").read_text())
        assert found["job_id"].startswith(f"continue_training-{stage}-0-")
        assert found["settings"]["upstream"] == [above["job_id"]]
        ours, theirs = (load_file(one / "model.safetensors") for one in (output, parent))
        assert all(tensor.equal(theirs[name]) for name, tensor in ours.items())
        parent = output


def test_pretraining_refuses_a_run_that_continues_another(text: Path, tmp_path: Path) -> None:
    slice = make_slice().model_copy(update={"init_from": "other"})
    with pytest.raises(ConfigError, match="train it with `extend_context` or `continue_training`"):
        pretrain(
            slice, dataset=text, output=tmp_path, state=tmp_path, seed=0, threads=1,
            tracker=NullTracker(), code="unit",
        )  # fmt: skip
