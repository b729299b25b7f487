"""Training methods: found by their files, and free to freeze what they do not train."""

import os
from pathlib import Path

import pytest
from safetensors.torch import load_file
from stopping import assert_same_outcome, checkpoints, start, wait_until
from tiny_training import Train, make_slice

from difftransformer.errors import ConfigError
from difftransformer.planning.plan import Plan
from difftransformer.training import methods

HEAD_ONLY = """
from difftransformer.training.optimiser import AdamW

def prepare(model, config):
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name == "lm_head.weight")
    return AdamW(model.named_parameters(), config)
"""


@pytest.fixture
def head_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A method that lies in the folder as a file and stands nowhere else."""
    folder = tmp_path / "methods"
    folder.mkdir()
    (folder / "head_only.py").write_text(HEAD_ONLY)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(folder)])
    return "head_only"


def test_a_file_is_a_method(train: Train, head_only: str) -> None:
    short, long = (
        load_file(train(make_slice(method=head_only, steps=n), str(n)) / "out/model.safetensors")
        for n in (3, 6)
    )
    assert {name for name in long if not long[name].equal(short[name])} == {"lm_head.weight"}


def test_what_a_method_keeps_is_resumed(train: Train, head_only: str, tmp_path: Path) -> None:
    slice = make_slice(method=head_only, steps=301, checkpoint_every=3)
    undisturbed = train(slice, "undisturbed")
    process = start(train, slice, "killed")
    wait_until(lambda: max(checkpoints(tmp_path / "killed"), default=0) >= 6, process)
    os.kill(process.pid or 0, 9)
    process.join()
    train(slice, "killed")
    assert_same_outcome(undisturbed, tmp_path / "killed")


def test_an_unknown_method_is_one_line_before_any_job(config_folder: Path) -> None:
    runs = config_folder / "runs.yaml"
    text = runs.read_text()
    known = "attention: {norm: false}"
    assert known in text
    runs.write_text(text.replace(known, f"{known}}}, training: {{method: ful", 1))
    with pytest.raises(ConfigError, match=r"unknown method 'ful'; did you mean 'full'") as refusal:
        Plan.load(config_folder, {"scale": "smoke"})
    assert "\n" not in str(refusal.value) and "training.method" in str(refusal.value)
