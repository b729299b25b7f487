"""Documents packed in one row give what each gives alone, for every variant and backend."""

from typing import Any

import pytest
import torch
from small_layers import D_MODEL, build
from torch import Tensor

from difftransformer import AttentionLayer, DifferentialAttention, KeyValueCache
from difftransformer.convert.attention_hooks import capture_attention
from difftransformer.errors import BackendError, ConfigError
from difftransformer.models.attention.registry import variants
from difftransformer.models.config import ModelConfig
from difftransformer.models.kernels import fused
from difftransformer.models.layers import layer_class
from difftransformer.models.transformer import Transformer

CPU_BACKENDS = ["fused"] if fused.interpreted() else ["eager", "sdpa", "blocked", "cpu_dispatch"]
PRECISIONS = [(torch.float32, 1e-5)] + ([] if fused.interpreted() else [(torch.float64, 1e-10)])
LENGTHS = [[1, 33, 7, 66], [90, 17]]
"""Of the documents in each of two rows of 107 positions: beyond a block of 64 queries."""


def borrowed(options: dict[str, Any], backend: str, dtype: torch.dtype) -> AttentionLayer:
    settings = {name: value for name, value in options.items() if name != "variant"}
    layer = layer_class(options["variant"])(D_MODEL, **settings, layer_index=1, backend=backend)
    layer.load_state_dict(build(options, backend).state_dict())
    return layer.to(dtype)


def segments(rows: list[list[int]]) -> Tensor:
    """Ids of documents of some lengths; those of the second row do not ascend."""
    ids = [torch.arange(len(row)).repeat_interleave(torch.tensor(row)) for row in rows]
    return torch.stack([ids[0], *(-document for document in ids[1:])])


def each_alone(run: Any, x: Tensor, rows: list[list[int]]) -> Tensor:
    """What ``run`` makes of each document by itself, side by side as they are packed in x."""
    made = [
        torch.cat([run(document) for document in torch.split(x[b : b + 1], row, dim=1)], dim=1)
        for b, row in enumerate(rows)
    ]
    return torch.cat(made)


def outcome(layer: AttentionLayer, x: Tensor, out: Tensor) -> dict[str, Tensor]:
    probe = torch.randn(out.shape, generator=torch.Generator().manual_seed(7)).to(out.dtype)
    inputs = {"x": x, **dict(layer.named_parameters())}
    actual = torch.autograd.grad((out * probe).sum(), [*inputs.values()])
    return {"out": out, **dict(zip(inputs, actual, strict=True))}


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    for name, value in expected.items():
        size = value.abs().max().clamp_min(1.0)
        assert (actual[name] - value).abs().max() / size < tolerance, name


@pytest.mark.parametrize("backend", CPU_BACKENDS)
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_packed_documents_are_separate_documents(
    options: dict[str, Any], backend: str, dtype: torch.dtype, tolerance: float
) -> None:
    layer = borrowed(options, backend, dtype)
    x = torch.randn(2, 107, D_MODEL, generator=torch.Generator().manual_seed(1))
    x = (0.7 * x).to(dtype).requires_grad_()  # logits at which float32 rounds by less than 1e-5
    packed = outcome(layer, x, layer(x, segment_ids=segments(LENGTHS)))
    alone = outcome(layer, x, each_alone(layer, x, LENGTHS))
    assert_same(packed, alone, tolerance)
    assert (packed["out"] - layer(x)).abs().max() > 1e-3  # else there would be nothing to separate


def test_long_rows_that_go_by_blocks_are_separate_documents() -> None:
    layer = DifferentialAttention(32, num_heads=2, layer_index=0, backend="auto")
    rows = [[301, 2, 100]]
    x = torch.randn(1, 403, 32, requires_grad=True)
    packed = outcome(layer, x, layer(x, segment_ids=segments(rows)))
    assert_same(packed, outcome(layer, x, each_alone(layer, x, rows)), 1e-5)


@torch.no_grad()
@pytest.mark.parametrize("variant", variants())
def test_a_document_may_be_scattered_over_the_row(variant: str) -> None:
    layer = layer_class(variant)(D_MODEL, num_heads=2, head_dim=6, layer_index=0)
    x, even = torch.randn(2, 9, D_MODEL), torch.arange(9) % 2 == 0
    out = layer(x, segment_ids=even.long()[None])
    for which in (even, ~even):
        torch.testing.assert_close(out[:, which], layer(x[:, which]), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_explicit_positions_are_used() -> None:
    layer = DifferentialAttention(32, num_heads=2, layer_index=0)
    x, ids = torch.randn(1, 7, 32), segments([[3, 4]])
    restarting = torch.tensor([0, 1, 2, 0, 1, 2, 3])
    out = layer(x, segment_ids=ids)
    assert torch.equal(layer(x, segment_ids=ids, positions=restarting), out)
    spread = layer(x, segment_ids=ids, positions=restarting * 3)
    alone = each_alone(
        lambda document: layer(document, positions=3 * torch.arange(document.shape[1])), x, [[3, 4]]
    )
    torch.testing.assert_close(spread, alone, rtol=1e-5, atol=1e-6)
    assert (spread - out).abs().max() > 1e-4
    without = DifferentialAttention(32, num_heads=2, layer_index=0, rope_theta=None)
    separate = each_alone(without, x, [[3, 4]])
    torch.testing.assert_close(without(x, segment_ids=ids), separate, rtol=1e-5, atol=1e-6)


def model(max_positions: int = 16, **settings: Any) -> Transformer:
    config = ModelConfig(
        vocab_size=50, d_model=32, num_layers=2, ffn_dim=48, max_positions=max_positions,
        attention={"variant": "diff_v1", "head_dim": 8}, **settings,
    )  # fmt: skip
    return Transformer.build(config, "blocked", seed=0)


@pytest.mark.parametrize("activation_checkpointing", ["none", "layer"])
def test_a_model_packs_documents_longer_together_than_its_positions(
    activation_checkpointing: str,
) -> None:
    packed, rows = model(), [[16, 1, 10]]
    packed.activation_checkpointing = activation_checkpointing
    tokens = torch.randint(50, (1, 27))
    logits = packed(tokens, segment_ids=segments(rows))
    alone = each_alone(model(), tokens, rows)
    torch.testing.assert_close(logits, alone, rtol=1e-5, atol=1e-5)
    with pytest.raises(ConfigError, match="a sequence of 17 positions is longer"):
        packed(tokens, segment_ids=segments([[17, 10]]))


def refusals() -> list[tuple[Any, type[Exception], str]]:
    layer, x = DifferentialAttention(32, num_heads=2, layer_index=0), torch.randn(2, 5, 32)
    ids, mask = torch.zeros(2, 5, dtype=torch.long), torch.ones(1, 1, 5, 5, dtype=torch.bool)
    tokens, cache = torch.zeros(2, 5, dtype=torch.long), KeyValueCache(9)
    return [
        (lambda: layer(x, segment_ids=ids[:, :4]), ConfigError, r"\[2, 4\], expected integers"),
        (lambda: layer(x, segment_ids=ids.float()), ConfigError, "torch.float32"),
        (lambda: layer(x, mask=mask, segment_ids=ids), ConfigError, "exclude each other"),
        (lambda: layer(x, cache=cache, segment_ids=ids), ConfigError, "use_cache=False"),
        (lambda: model()(tokens, cache=cache, segment_ids=ids), ConfigError, "use_cache=False"),
        (lambda: watched(model(), tokens, ids), BackendError, "one document per row"),
    ]


def watched(model: Transformer, tokens: Tensor, ids: Tensor) -> None:
    with capture_attention(model, 64):
        model(tokens, segment_ids=ids)


@pytest.mark.parametrize("case", range(6))
def test_features_incompatible_with_documents_raise_one_line_errors(case: int) -> None:
    call, error, why = refusals()[case]
    with pytest.raises(error, match=why) as refusal:
        call()
    assert "\n" not in str(refusal.value)
