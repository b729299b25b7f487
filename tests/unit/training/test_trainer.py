"""One uninterrupted training: its results, outputs and errors."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from tiny_training import Train, column, history, make_run_config

from difftransformer.convert.attention_hooks import attention_layers
from difftransformer.convert.checkpoint import load_model
from difftransformer.data.loader import BatchLoader
from difftransformer.errors import BackendError, CheckpointError, ConfigError, DivergenceError
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.result import read_result
from difftransformer.tracking.tracker import NullTracker
from difftransformer.training import pretrain as pretraining
from difftransformer.training.pretrain import pretrain
from difftransformer.training.run import JobArguments
from difftransformer.training.trainer import Trainer


def test_loss_falls_and_outputs_are_complete(train: Train) -> None:
    folder = train(make_run_config(steps=60, log_every=10, validate_every=30))
    loss = column(folder, "loss")
    assert loss[0] > 3.0
    assert loss[-1] < 1.5  # the entropy of the text is ln 2 = 0.69
    assert column(folder, "step") == [10, 20, 30, 40, 50, 60]
    assert [bool(row["validation_loss"]) for row in history(folder)] == [0, 0, 1, 0, 0, 1]
    written = {path.name for path in (folder / "out").iterdir()}
    assert written >= {"model.safetensors", "config.json", "history.csv", "training.json"}
    assert (folder / "out" / "tokenizer.json").read_text() == '{"this": "is copied"}'
    metrics = read_result(folder / "out" / "training.json").metrics
    assert metrics["train_loss"] == loss[-1]
    assert metrics["validation_loss"] == column(folder, "validation_loss")[-1]
    assert (metrics["steps"], metrics["tokens"]) == (60, 60 * 16 * 16)
    embeddings = 2 * 64 * 32
    assert metrics["parameters"] == metrics["non_embedding_parameters"] + embeddings
    heartbeat = json.loads((folder / "state" / "progress.json").read_text())
    assert (heartbeat["step"], heartbeat["steps"]) == (60, 60)


def test_every_row_sees_the_windows_of_its_seed(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[torch.Tensor]] = {}
    next_batch = BatchLoader.next_batch
    for name, variant, seed in (("a", "diff_v1", 0), ("b", "softmax", 0), ("c", "softmax", 1)):
        batches = seen[name] = []

        def recorded(loader: BatchLoader, into: list[torch.Tensor] = batches) -> torch.Tensor:
            into.append(next_batch(loader))
            return into[-1]

        monkeypatch.setattr(BatchLoader, "next_batch", recorded)
        train(make_run_config(variant), name, seed=seed)
    a, b, c = (torch.stack(batches) for batches in seen.values())
    assert len(a) == 8
    assert torch.equal(a, b)
    assert not torch.equal(b, c)


def test_accumulated_micro_batches_match_the_full_batch(train: Train) -> None:
    full_batch = train(make_run_config(steps=3, log_every=1), "whole")
    micro_batches = train(make_run_config(steps=3, log_every=1, micro_batch_size=8), "halves")
    assert column(micro_batches, "loss") == pytest.approx(column(full_batch, "loss"), rel=1e-6)
    assert column(micro_batches, "grad_norm") == pytest.approx(
        column(full_batch, "grad_norm"), rel=1e-5
    )
    expected, actual = (
        load_file(f / "out" / "model.safetensors") for f in (full_batch, micro_batches)
    )
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, rtol=0, atol=1e-4)


@pytest.mark.parametrize("variant", ["diff_v1", "diff_v2", "tda", "softmax"])
def test_lambdas_of_the_trained_layers(train: Train, text: Path, variant: str) -> None:
    run_config = make_run_config(
        variant, micro_batch_size=8, validation_tokens=300, validate_every=2
    )
    folder = train(run_config) / "out"
    metrics = read_result(folder / "training.json").metrics
    weights = load_file(folder / "model.safetensors")
    model = load_model(folder).requires_grad_(False)
    seen: dict[int, torch.Tensor] = {}
    for layer in attention_layers(model):
        layer.register_forward_pre_hook(
            lambda attention, x: seen.update({attention.layer_index: x[0]})
        )
    heads = model.config.attention.num_heads
    held_out = torch.from_numpy(
        np.fromfile(text / "shards" / "validation.bin", "<u2")[:288].astype(int)
    )
    model.hidden_states(held_out.view(18, 16))  # 300 tokens are 18 windows of 16

    def formula(layer: int) -> torch.Tensor:
        own = {
            name.rpartition("attention.")[2]: tensor
            for name, tensor in weights.items()
            if name.startswith(f"layers.{layer}.attention.")
        }
        if variant == "diff_v2":  # for each token and head
            return torch.sigmoid(seen[layer] @ own["qkv_proj.weight"][-heads:].T).mean()
        if variant == "tda":  # for each head
            return own["lambdas"].clamp(0, 1).mean()
        dots = [own[f"lambda_q{i}"] @ own[f"lambda_k{i}"] for i in (1, 2)]
        return dots[0].exp() - dots[1].exp() + 0.8 - 0.6 * math.exp(-0.3 * layer)

    actual = {name: value for name, value in metrics.items() if name.startswith("lambda")}
    points = {name: column(folder.parent, name) for name in actual}
    assert all(len(set(values)) == 4 for values in points.values())  # it is a curve
    assert {name: values[-1] for name, values in points.items()} == pytest.approx(actual, rel=1e-9)
    if variant == "softmax":
        assert actual == {}
    else:
        expected = {f"lambda_l{layer}": float(formula(layer)) for layer in range(2)}
        assert actual == pytest.approx(expected, rel=1e-5)


def frame(folder: Path, text: Path) -> JobArguments:
    return JobArguments(
        dataset=text,
        output=folder / "out",
        state=folder / "state",
        seed=0,
        threads=1,
        tracker=NullTracker(),
        code="code",
    )


def poison(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let a gradient of the model turn NaN in the given backward pass."""
    calls, build = 0, pretraining._initial_model

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return gradient * math.nan if calls == step else gradient

    def poisoned(*args: Any) -> Transformer:
        model = build(*args)
        model.output_weight.register_hook(spoil)
        return model

    monkeypatch.setattr(pretraining, "_initial_model", poisoned)


def test_nan_gradient_stops_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, 5)
    with pytest.raises(DivergenceError, match=r"at step 5/8 \(lr .*lower training.lr") as caught:
        pretrain(make_run_config(checkpoint_every=3), **frame(tmp_path, text))
    assert "\n" not in str(caught.value)
    assert [p.name for p in (tmp_path / "state").glob("checkpoint-*")] == ["checkpoint-00000003"]
    assert not (tmp_path / "out" / "training.json").exists()


def test_weights_stay_those_of_the_last_good_step(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each step is checked, as on a CPU, and where a GPU would have to wait for that."""
    train, weights = Trainer.train, {}

    def run(name: str, *, checked: bool, budget: dict[str, Any]) -> None:
        def train_and_record(self: Trainer, *args: Any) -> None:
            self._checks_each_step = checked
            try:
                train(self, *args)
            finally:
                actual = self.model.state_dict().items()
                weights[name] = {key: tensor.clone() for key, tensor in actual}
                steps[name] = self.step

        monkeypatch.setattr(Trainer, "train", train_and_record)
        poison(monkeypatch, 5)
        with pytest.raises(DivergenceError):
            pretrain(make_run_config(**budget), **frame(tmp_path / name, text))

    steps: dict[str, int] = {}
    budget = {"steps": 8, "log_every": 8, "validate_every": 8}
    run("checked", checked=True, budget=budget)
    run("unchecked", checked=False, budget=budget)
    assert steps == {"checked": 5, "unchecked": 8}
    for key, tensor in weights["checked"].items():
        assert tensor.isfinite().all(), key
        assert tensor.equal(weights["unchecked"][key]), key


@pytest.mark.parametrize("change", [{"lr": 1e4, "grad_clip": None}, {"divergence_loss": 0.5}])
def test_divergence_is_one_line(train: Train, change: dict[str, Any]) -> None:
    with pytest.raises(DivergenceError) as caught:
        train(make_run_config(**({"divergence_loss": 20.0} | change)))
    assert "\n" not in str(caught.value)
    assert "lower training.lr" in str(caught.value)


def test_a_recorded_divergence_is_a_result(train: Train) -> None:
    budget = {"steps": 12, "log_every": 1, "validate_every": 4, "on_divergence": "record"}
    folder = train(make_run_config(**budget, lr=1e4, grad_clip=None, divergence_loss=20.0))
    metrics = read_result(folder / "out" / "training.json").metrics
    at = metrics["diverged_at"]
    assert isinstance(at, int) and at < 12
    assert (metrics["diverged"], metrics["planned_steps"], metrics["steps"]) == (1, 12, at)
    assert "lambda_l0" not in metrics
    assert metrics["train_loss"] is None and metrics["validation_loss"] is None
    assert column(folder, "step") == list(range(1, at))
    assert all(map(math.isfinite, column(folder, "grad_norm")))
    assert (folder / "out" / "model.safetensors").exists()


def test_complete_run_records_no_divergence(train: Train) -> None:
    metrics = read_result(
        train(make_run_config(on_divergence="record")) / "out/training.json"
    ).metrics
    assert (metrics["diverged"], metrics["diverged_at"], metrics["steps"]) == (0, None, 8)
    assert metrics["train_loss"] is not None


SHORT_OF_MEMORY = """
import resource, sys
from pathlib import Path
from difftransformer.config.run import RunConfig
from difftransformer.errors import UserError
from difftransformer.tracking.tracker import NullTracker
from difftransformer.training import pretrain as pretraining

folder, text = Path(sys.argv[1]), Path(sys.argv[2])
run_config = RunConfig.model_validate_json((folder / "run_config.json").read_bytes())

draw = pretraining._initial_model

def build(*args):
    model = draw(*args)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 20_000_000, used + 20_000_000))
    return model

pretraining._initial_model = build
try:
    pretraining.pretrain(
        run_config, dataset=text, output=folder / "out", state=folder / "state", seed=0, threads=1,
        tracker=NullTracker(), code="",
    )
except UserError as error:
    print(error)
"""


def test_out_of_memory_says_what_to_lower(tmp_path: Path, text: Path) -> None:
    run_config = make_run_config(steps=1, warmup_steps=0, batch_size=300)
    (tmp_path / "run_config.json").write_text(run_config.model_dump_json())
    command = [sys.executable, "-c", SHORT_OF_MEMORY, str(tmp_path), str(text)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    message = ended.stdout.strip()
    assert "out of memory on cpu at 300 x 16 tokens" in message, ended.stderr
    assert "lower training.micro_batch_size" in message
    assert "\n" not in message


def test_refuses_before_the_first_step(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"training\.probe"):
        train(make_run_config(probe={}))
    with pytest.raises(ConfigError, match="vocab_size"):
        train(make_run_config(vocab_size=63))
    if not torch.cuda.is_available():
        with pytest.raises(BackendError, match=r"training\.device is cuda"):
            train(make_run_config(device="cuda"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        ConfigError, match=r"training\.world_size is 1, but 2 processes were started"
    ):
        train(make_run_config())
    with pytest.raises(ValidationError, match="world_size 3 does not divide batch_size 16"):
        make_run_config(world_size=3)
    with pytest.raises(ValidationError, match="does not divide the 8 sequences of each process"):
        make_run_config(world_size=2, micro_batch_size=3)


def test_unwritable_output_is_one_line(train: Train, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "out").write_text("a file where the folder should be")
    with pytest.raises(CheckpointError, match=r"could not be written to .* to publish it"):
        train(make_run_config())
    (tmp_path / "run" / "out").unlink()
    train(make_run_config())


def test_bf16_autocast_trains(train: Train) -> None:
    folder = train(make_run_config(precision="bf16", steps=20))
    assert column(folder, "loss")[-1] < column(folder, "loss")[0]


class Recorder(NullTracker):
    """Keeps the points, to be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[int, dict[str, float]]] = []

    def log_metrics(self, values: Any, step: int = 0) -> None:
        self.points.append((step, dict(values)))


def test_tracker_gets_the_history_and_the_speed(train: Train) -> None:
    tracker = Recorder()
    folder = train(make_run_config(), tracker=tracker)
    *curve, (last_step, final) = tracker.points
    assert [step for step, _ in curve] == [2, 4, 6, 8]
    assert [values["loss"] for _, values in curve] == column(folder, "loss")
    assert all(values["tokens_per_second"] > 0 for _, values in curve)
    assert last_step == 8
    assert final["summary/steps"] == 8 and all(name.startswith("summary/") for name in final)
    assert "summary/train_loss" not in final  # it is the last point of `loss`
    assert [values["lambda_l1"] for _, values in curve] == column(folder, "lambda_l1")
    assert "tokens_per_second" not in history(folder)[0]


@pytest.mark.parametrize("variant", ["softmax", "diff_v1", "diff_v2", "dint"])
@pytest.mark.parametrize("mode", ["layer", "selective"])
def test_activation_checkpointing_gives_the_same_bytes(
    train: Train, variant: str, mode: str
) -> None:
    settings = {"steps": 6, "validate_every": 3, "micro_batch_size": 8}
    plain = train(make_run_config(variant, **settings), "intermediate")
    again = train(make_run_config(variant, activation_checkpointing=mode, **settings), "again")
    for name in ("model.safetensors", "history.csv"):
        assert (plain / "out" / name).read_bytes() == (again / "out" / name).read_bytes()
