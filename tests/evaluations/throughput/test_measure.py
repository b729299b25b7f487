"""Timings of small models: the joint result of all processes."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from difftransformer.config.evaluations import BenchmarkConfig, Models
from difftransformer.config.validation import validate
from difftransformer.errors import BackendError, ConfigError
from difftransformer.evaluations.throughput import measure
from difftransformer.evaluations.throughput.measure import FLOPS, make_step, peak_flops_of
from difftransformer.evaluations.throughput.settings import Timing
from difftransformer.models.config import ModelConfig
from difftransformer.models.kernels import blocked
from difftransformer.models.sizes import forward_flops, training_flops
from difftransformer.models.transformer import Transformer
from difftransformer.training.compiled import compiled_states

PROCESSES = 3
SETTINGS: dict[str, Any] = {
    "device": "cpu", "backends": ["eager", "blocked"], "warmup": 0, "repeats": 3, "threads": 1,
    "processes": PROCESSES,
    "shapes": {"short": {"label": "8", "seq_len": 8, "batch_size": 2}},
}  # fmt: skip


def config(**changes: Any) -> Timing:
    validated: Timing = validate(Timing, SETTINGS | changes, "scale: throughput")
    return validated


def model(variant: str) -> ModelConfig:
    return ModelConfig(
        vocab_size=32,
        d_model=16,
        num_layers=1,
        ffn_dim=24,
        attention={"variant": variant, "head_dim": 4},
        max_positions=8,
    )


ROWS = {"transformer": {"short": model("softmax")}, "diff": {"short": model("diff_v1")}}


Measured = Callable[..., dict[str, Any]]


@pytest.fixture
def measured(timed: Callable[[BenchmarkConfig], dict[str, Any]]) -> Measured:
    """Return the metrics of rows, with changed settings."""

    def measure(rows: Models = ROWS, **changes: Any) -> dict[str, Any]:
        settings = {"config": config(**changes), "models": rows}
        return timed(BenchmarkConfig(scale="unit", evaluation="throughput", **settings))

    return measure


def test_the_result_has_every_row_backend_and_mode(measured: Measured) -> None:
    metrics = measured()
    for row, variant in (("transformer", "softmax"), ("diff", "diff_v1")):
        for backend in ("eager", "blocked"):
            for mode in FLOPS:
                key = f"short/{row}/{backend}/{mode}"
                seconds = [
                    [metrics[f"seconds/{key}/{process}/{number}"] for number in range(3)]
                    for process in range(PROCESSES)
                ]
                middle = (
                    16 / sorted(sorted(seconds_of_process)[1] for seconds_of_process in seconds)[1]
                )
                assert math.isclose(metrics[f"tokens_per_second/{key}"], middle, rel_tol=1e-9)
                assert metrics[f"peak_bytes/{key}"] > 0
                share = metrics[f"mfu/{key}"]
                assert share is not None and 0 < share < 1
                count = training_flops if mode == "training" else forward_flops
                counted = count(model(variant), 8, causal=True)
                assert metrics[f"flops_per_token/{key}"] == counted < count(model(variant), 8)
    eager = "peak_bytes/short/transformer/eager"
    assert metrics[f"{eager}/training"] > metrics[f"{eager}/forward"]


def test_rows_with_trained_sizes_are_timed_in_separate_rounds(measured: Measured) -> None:
    batch = {"label": "4", "seq_len": 4, "batch_size": 3}
    rows = {"transformer": {"short": model("softmax")}, "tda": {"trained_sizes": model("tda")}}
    metrics = measured(rows, trained_sizes=batch)
    timed = {tuple(name.split("/")[1:3]) for name in metrics if "/" in name}
    assert timed == {("short", "transformer"), ("trained_sizes", "tda")}
    key = "trained_sizes/tda/eager/training"
    middle = [
        sorted(metrics[f"seconds/{key}/{process}/{number}"] for number in range(3))[1]
        for process in range(PROCESSES)
    ]
    speed = metrics[f"tokens_per_second/{key}"]
    assert math.isclose(speed, 4 * 3 / sorted(middle)[1], rel_tol=1e-9)
    with pytest.raises(ConfigError, match=r"'trained_sizes' is a setting of its own"):
        config(shapes=SETTINGS["shapes"] | {"trained_sizes": batch})


def test_a_benchmark_config_survives_a_round_trip_as_json() -> None:
    slice = BenchmarkConfig(scale="unit", evaluation="throughput", config=config(), models=ROWS)
    assert BenchmarkConfig.model_validate_json(slice.model_dump_json()) == slice
    wrong = slice.model_dump(mode="json")
    wrong["config"]["shape"] = {}
    with pytest.raises(ConfigError, match=r"shape.*did you mean 'shapes'"):
        BenchmarkConfig.model_validate(wrong)


def test_training_makes_the_gradients_of_the_loss_by_every_backend() -> None:
    gradients = []
    for backend in ("eager", "blocked"):
        transformer = Transformer.build(model("diff_v1"), "eager", 0)
        tokens = torch.arange(18).view(2, 9)
        make_step(transformer, backend, "forward", tokens, config())()
        assert all(part.grad is None for part in transformer.parameters())
        call = make_step(transformer, backend, "training", tokens, config())
        call()
        call()  # gradients of a call do not add to those of the one before
        gradients.append([part.grad for part in transformer.parameters()])
        assert all(grad is not None for grad in gradients[-1])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)


def test_peak_flops_follow_from_the_device_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H100 80GB HBM3")
    for precision, peak in (("bf16", 9.89e14), ("fp32", None)):
        assert peak_flops_of(config(precision=precision), torch.device("cuda")) == peak


def test_mfu_is_flops_per_second_over_the_peak(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "peak_flops_of", lambda config, device: 1e9)
    metrics = measured(backends=["eager"])
    for mode in FLOPS:
        speed, flops, share = (
            metrics[f"{name}/short/diff/eager/{mode}"]
            for name in ("tokens_per_second", "flops_per_token", "mfu")
        )
        assert share == pytest.approx(speed * flops / 1e9)


def test_a_backend_without_support_for_the_heads_is_skipped(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise BackendError("no kernel for such heads")

    monkeypatch.setattr(blocked, "differential_attention", refuse)
    metrics = measured()
    timed = {name: speed for name, speed in metrics.items() if name.startswith("tokens_per_second")}
    left_out = {name.split("/", 2)[2] for name, speed in timed.items() if speed is None}
    assert left_out == {"diff/blocked/training", "diff/blocked/forward"}
    assert "seconds/short/diff/blocked/training/0/0" not in metrics
    assert metrics["peak_bytes/short/transformer/blocked/training"]


def test_invalid_timing_settings_are_refused(measured: Measured, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="flash_attn"):
        measured(backends=["flash_attn"], precision="bf16")
    assert not [*tmp_path.iterdir()]
    for changes, message in (
        ({"backends": ["flash_attn"]}, "half precision"),
        ({"repeats": 2}, "repeats"),
        ({"processes": 2}, "processes"),
        ({"clock": "cpu", "device": "auto"}, "clock: cpu"),
        ({"backends": ["sdpa", "sdpa"]}, "distinct"),
        ({"shapes": {}}, "shapes"),
    ):
        with pytest.raises(ConfigError, match=message):
            config(**changes)


def test_compiled_timing_makes_a_graph_per_row_backend_and_mode(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = CompileCounterWithBackend("eager")
    monkeypatch.setattr(
        measure, "compiled_states", lambda model: compiled_states(model, backend=graphs)
    )
    metrics = measured(backends=["eager", "sdpa"], compile=True, warmup=1)
    assert graphs.frame_count == PROCESSES * len(ROWS) * 2 * len(FLOPS)
    assert metrics["tokens_per_second/short/diff/sdpa/training"] > 0
