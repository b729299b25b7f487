"""Decoding by small models: it writes what the whole forward pass chooses, and counts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_evaluation import running

from difftransformer.config.timing import TimingSlice
from difftransformer.config.validation import validate
from difftransformer.errors import BackendError, ConfigError, UserError
from difftransformer.evaluation.timing_job import identify, measure_timings
from difftransformer.measurements.decoding import measure
from difftransformer.measurements.decoding.measure import cache_bytes, filled_cache, turn
from difftransformer.measurements.decoding.settings import MODEL, Timing
from difftransformer.models.config import ModelConfig
from difftransformer.models.sizes import cached_numbers, count_parameters
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.result import read_result

pytestmark = pytest.mark.usefixtures("every_process_here")
SETTINGS: dict[str, Any] = {
    "device": "cpu", "backends": ["eager", "sdpa"], "warmup": 0, "repeats": 3, "threads": 1,
    "processes": 3,
    "batches": [1, 3], "contexts": [8], "new_tokens": 4,
}  # fmt: skip
VARIANTS = ("softmax", "diff_v1", "diff_v2")


def config(**changes: Any) -> Timing:
    found: Timing = validate(Timing, SETTINGS | changes, "scale: decoding")
    return found


def model(variant: str) -> ModelConfig:
    return ModelConfig(
        vocab_size=32, d_model=32, num_layers=2, ffn_dim=24, max_positions=16,
        attention={"variant": variant, "head_dim": 4, "heads_per_kv_head": 2},
    )  # fmt: skip


def timing(variants: tuple[str, ...] = VARIANTS, **changes: Any) -> TimingSlice:
    models = {one: {MODEL: model(one)} for one in variants}
    return TimingSlice(
        scale="unit", measurement="decoding", config=config(**changes), models=models
    )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@torch.no_grad()
def test_a_turn_writes_what_the_whole_forward_pass_chooses(variant: str, backend: str) -> None:
    built = Transformer.build(model(variant), "eager", 0)
    cache = filled_cache(built, 3, 8, 4)
    step = turn(built, backend, cache, 3, 8, 4)
    written = step()
    assert torch.equal(step(), written)  # from the same context again
    tokens = torch.randint(32, (3, 8), generator=torch.Generator().manual_seed(0))
    tokens = torch.cat((tokens, torch.zeros(3, 1, dtype=torch.long)), dim=1)
    for place in range(4):
        chosen = built(tokens)[:, -1:].argmax(-1)
        assert torch.equal(chosen, written[:, place : place + 1])
        tokens = torch.cat((tokens, chosen), dim=1)


@torch.no_grad()
def test_a_long_context_repeats_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_READ", 3)
    cache = filled_cache(Transformer.build(model("diff_v2"), "sdpa", 0), 2, 11, 4)
    for layer in range(2):
        for held in cache.held(layer):
            assert held.shape[2] == 11
            for place in range(11):
                assert torch.equal(held[:, :, place], held[:, :, place % 3])


def test_what_cannot_fit_is_refused_before_anything_is_timed() -> None:
    slice = timing(batches=[1, 10**9], contexts=[8, 10**6])
    said = r"lower timings\.decoding\.batches \(1000000000\) or timings\.decoding\.con"
    with pytest.raises(UserError, match=said):
        measure.measure(slice, torch.device("cpu"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_bytes_are_those_of_the_tensors(variant: str) -> None:
    cache = filled_cache(Transformer.build(model(variant), "sdpa", 0), 3, 8, 4)
    assert cache_bytes(cache, 2) == 4 * cached_numbers(model(variant))


def test_what_a_token_needs_is_weights_by_sequence_and_its_own_cache() -> None:
    tied = replace(model("softmax"), tie_embeddings=True)
    for one in (model("softmax"), tied):
        held = count_parameters(one) - (0 if one.tie_embeddings else 32 * 32)
        assert measure.weight_bytes(Transformer.build(one, "sdpa", 0)) == 4 * held


def test_the_speed_of_memory_is_that_of_the_device_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = config(memory_bandwidth={"H100 PCIe": 1.0, "H100": 2.0})
    for name, peak in (("NVIDIA H100 PCIe", 1.0), ("NVIDIA H100 80GB HBM3", 2.0), ("GH100", None)):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda _, name=name: name)
        assert measure.memory_speed(known, torch.device("cuda")) == peak
    ticks = iter(float(one) for one in range(100))  # a second for each turn
    assert measure.reading_speed(lambda: next(ticks), rows=2) == 2 * 4096 * 4


def test_every_row_backend_and_load_is_in_the_one_result(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    try:
        slice = timing()
        job = running(identify(slice, threads=1, code=""))
        measure_timings(slice, output=tmp_path / "d.json", job=job)
    finally:
        torch.set_num_threads(threads)
    metrics = read_result(tmp_path / "d.json").metrics
    assert (metrics["memory_bandwidth"] or 0) > 1e8
    for variant in VARIANTS:
        held = 4 * cached_numbers(model(variant))
        assert metrics[f"cache_bytes/{variant}"] == held
        weights = measure.weight_bytes(Transformer.build(model(variant), "sdpa", 0))
        for batch in (1, 3):
            least = metrics[f"least_bytes/b{batch}_s8/{variant}"]
            assert least == weights / batch + held * (8 + (1 + 2 + 3 + 4) / 4)
            for backend in ("eager", "sdpa"):
                place = f"b{batch}_s8/{variant}/{backend}/decoding"
                middle = []
                for process in range(3):
                    seconds = [
                        metrics[f"seconds/{place}/{process}/{number}"] for number in range(3)
                    ]
                    assert all(isinstance(one, float) and one > 0 for one in seconds)
                    middle.append(sorted(float(one or 0) for one in seconds)[1])
                median = sorted(middle)[1]
                assert metrics[f"tokens_per_second/{place}"] == pytest.approx(batch * 4 / median)


def test_what_cannot_be_timed_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="clock: cpu does not see"):
        config(clock="cpu", device="auto")
    if not torch.cuda.is_available():
        slice = timing((), device="cuda")
        with pytest.raises(BackendError, match=r"timings\.decoding\.device"):
            job = running(identify(slice, threads=1, code=""))
            measure_timings(slice, output=tmp_path / "d.json", job=job)


class Sized:
    """Sizes without a catalogue; what is matched says so."""

    def own(self, row: str) -> ModelConfig:
        raise AssertionError(row)

    def changed(self, row: str, changes: Any, max_positions: int, key: str) -> ModelConfig:
        assert (changes, key) == ({"num_layers": 3}, "timings.decoding")
        return replace(model(row), max_positions=max_positions)

    def matched(self, row: str, model: ModelConfig, to: ModelConfig) -> ModelConfig:
        return replace(model, ffn_dim=8) if row == "diff_v2" else model


def test_models_have_room_for_the_longest_context_and_are_matched_with_the_first() -> None:
    found = config(contexts=[8, 30], model={"num_layers": 3}).models(VARIANTS, ["tda"], Sized())
    models = {row: one[MODEL] for row, one in found.items()}
    assert [one.max_positions for one in models.values()] == [34, 34, 34]
    assert [one.ffn_dim for one in models.values()] == [24, 24, 8]
