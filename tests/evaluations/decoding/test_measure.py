"""Decoding by small models: tokens equal those of full forward passes, and counts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from difftransformer.config.evaluations import BenchmarkConfig
from difftransformer.config.validation import validate
from difftransformer.errors import BackendError, ConfigError, UserError
from difftransformer.evaluations.decoding import measure
from difftransformer.evaluations.decoding.measure import filled_cache, make_decode
from difftransformer.evaluations.decoding.settings import MODEL, DecodingShape, Timing
from difftransformer.models.config import ModelConfig
from difftransformer.models.transformer import Transformer

Timed = Callable[[BenchmarkConfig], dict[str, Any]]
SETTINGS: dict[str, Any] = {
    "device": "cpu", "backends": ["eager", "sdpa"], "warmup": 0, "repeats": 3, "threads": 1,
    "processes": 3,
    "batches": [1, 3], "contexts": [8], "new_tokens": 4,
}  # fmt: skip
VARIANTS = ("softmax", "diff_v1", "diff_v2")


def config(**changes: Any) -> Timing:
    validated: Timing = validate(Timing, SETTINGS | changes, "scale: decoding")
    return validated


def model(variant: str) -> ModelConfig:
    return ModelConfig(
        vocab_size=32, d_model=32, num_layers=2, ffn_dim=24, max_positions=16,
        attention={"variant": variant, "head_dim": 4, "heads_per_kv_head": 2},
    )  # fmt: skip


def load(context: int = 8) -> DecodingShape:
    return DecodingShape(label="", seq_len=4, batch_size=3, context=context)


def timing(**changes: Any) -> BenchmarkConfig:
    models = {model_config: {MODEL: model(model_config)} for model_config in VARIANTS}
    return BenchmarkConfig(
        scale="unit", evaluation="decoding", config=config(**changes), models=models
    )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@torch.no_grad()
def test_decoding_with_a_cache_matches_full_forward_passes(variant: str, backend: str) -> None:
    built = Transformer.build(model(variant), "eager", 0)
    step = make_decode(built, backend, filled_cache(built, load()), load())
    written = step()
    assert torch.equal(step(), written)  # from the same context again
    tokens = torch.randint(32, (3, 8), generator=torch.Generator().manual_seed(0))
    tokens = torch.cat((tokens, torch.zeros(3, 1, dtype=torch.long)), dim=1)
    for step_number in range(4):
        chosen = built(tokens)[:, -1:].argmax(-1)
        assert torch.equal(chosen, written[:, step_number : step_number + 1])
        tokens = torch.cat((tokens, chosen), dim=1)


@torch.no_grad()
def test_a_long_context_repeats_the_computed_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_PREFILL", 3)
    cache = filled_cache(Transformer.build(model("diff_v2"), "sdpa", 0), load(context=11))
    for layer in range(2):
        for held in cache.get(layer):
            assert held.shape[2] == 11
            for position in range(11):
                assert torch.equal(held[:, :, position], held[:, :, position % 3])


def test_shapes_beyond_the_memory_are_refused_before_timing() -> None:
    slice = timing(batches=[1, 10**9], contexts=[8, 10**6])
    message = r"lower timings\.decoding\.batches \(1000000000\) or timings\.decoding\.con"
    with pytest.raises(UserError, match=message):
        measure.measure(slice, torch.device("cpu"), 0)


def test_memory_bandwidth_follows_from_the_device_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"NVIDIA H100 PCIe": 2.0e12, "NVIDIA H100 80GB HBM3": 3.35e12, "GH100": None}
    for name, peak in names.items():
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda _, name=name: name)
        assert measure.memory_bandwidth_of(config(), torch.device("cuda")) == peak
    ticks = iter(float(model_config) for model_config in range(100))  # a second for each turn
    assert measure.cpu_read_bandwidth(lambda: next(ticks), rows=2) == 2 * 4096 * 4


@pytest.mark.parametrize("tied", [False, True])
def test_the_result_has_every_row_backend_and_shape(timed: Timed, tied: bool) -> None:
    slice = timing(batches=[1, 3])
    models = {
        row: replace(model_config[MODEL], tie_embeddings=tied)
        for row, model_config in slice.models.items()
    }
    metrics = timed(slice.model_copy(update={"models": {r: {MODEL: m} for r, m in models.items()}}))
    assert metrics["memory_bandwidth"] > 1e8
    for variant, model_config in models.items():
        built = Transformer.build(model_config, "sdpa", 0)
        cache = filled_cache(built, load())
        tensors = [tensor for layer in range(2) for tensor in cache.get(layer)]
        held = sum(tensor.nbytes for tensor in tensors) / (3 * 8)
        assert metrics[f"cache_bytes/{variant}"] == held
        read = [weight for name, weight in built.named_parameters() if tied or "embed" not in name]
        weights = sum(weight.nbytes for weight in read)
        for batch in (1, 3):
            least = metrics[f"min_bytes_read/b{batch}_s8/{variant}"]
            assert least == weights / batch + held * (8 + (1 + 2 + 3 + 4) / 4)
            for backend in ("eager", "sdpa"):
                key = f"b{batch}_s8/{variant}/{backend}/decoding"
                seconds = [[metrics[f"seconds/{key}/{p}/{r}"] for r in range(3)] for p in range(3)]
                middle = sorted(sorted(model_config)[1] for model_config in seconds)[1]
                assert metrics[f"tokens_per_second/{key}"] == pytest.approx(batch * 4 / middle)


def test_invalid_timing_settings_give_a_one_line_error(timed: Timed) -> None:
    with pytest.raises(ConfigError, match="clock: cpu does not see"):
        config(clock="cpu", device="auto")
    if not torch.cuda.is_available():
        with pytest.raises(BackendError, match=r"timings\.decoding\.device"):
            timed(timing(device="cuda"))
