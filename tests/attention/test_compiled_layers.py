"""`torch.compile(layer, fullgraph=True)`: the outputs and gradients of the layer that is not."""

import copy
from typing import Any

import pytest
import torch
from small_layers import FITTING
from torch import Tensor

from difftransformer import AttentionLayer, KeyValueCache
from difftransformer.models.attention.registry import variants
from difftransformer.models.kernels import blocked, cpu_dispatch
from difftransformer.models.layers import layer_class

D = 24


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 12 positions be by blocks, two of them, and fewer by SDPA where `auto` has a choice."""
    torch._dynamo.reset()
    monkeypatch.setattr(blocked, "BLOCK", 8)
    monkeypatch.setattr(cpu_dispatch, "MIN_QUERIES", 10)


def layer(variant: str, **settings: Any) -> AttentionLayer:
    torch.manual_seed(0)
    options = {"num_heads": 4, "head_dim": 4, "num_kv_heads": 2, **FITTING.get(variant, {})}
    return layer_class(variant)(D, layer_index=1, **{**options, **settings})


def inputs(length: int) -> Tensor:
    return torch.randn(2, length, D, generator=torch.Generator().manual_seed(length))


def output_and_grads(
    call: Any, attention: AttentionLayer, x: Tensor, **arguments: Any
) -> list[Tensor]:
    """The output, and the gradients of the input and of all parameters."""
    x = x.clone().requires_grad_()
    out = call(x, **arguments)
    factors = torch.arange(float(out.numel())).view_as(out).cos()
    return [out, *torch.autograd.grad((out * factors).sum(), [x, *attention.parameters()])]


def assert_compiled_equals_eager(attention: AttentionLayer, length: int, compiler: str) -> None:
    eager, x = copy.deepcopy(attention), inputs(length)
    compiled = torch.compile(attention, fullgraph=True, backend=compiler)
    actual, expected = output_and_grads(compiled, attention, x), output_and_grads(eager, eager, x)
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("variant", variants())
def test_auto_is_compiled_forward_and_backward(variant: str) -> None:
    assert_compiled_equals_eager(layer(variant), 12, "aot_eager")


@pytest.mark.parametrize("variant", ["softmax", "gpt_oss_sink"])
def test_a_graph_of_any_length_is_compiled(variant: str) -> None:
    torch._dynamo.reset()
    attention = layer(variant)
    eager, compiled = (
        copy.deepcopy(attention),
        torch.compile(attention, fullgraph=True, backend="aot_eager"),
    )
    for length in (12, 17):
        x = inputs(length)
        actual, expected = (
            output_and_grads(compiled, attention, x),
            output_and_grads(eager, eager, x),
        )
        torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["auto", "blocked", "sdpa", "eager"])
@pytest.mark.parametrize("variant", variants())
def test_each_backend_is_compiled_forward_and_backward(variant: str, backend: str) -> None:
    assert_compiled_equals_eager(layer(variant, backend=backend), 9, "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["softmax", "diff_v1", "gpt_oss_sink"])
def test_the_default_compiler_takes_each_operation_of_auto(variant: str) -> None:
    assert_compiled_equals_eager(layer(variant), 12, "inductor")


def test_masks_positions_documents_and_a_cache_are_compiled() -> None:
    attention = layer("diff_v1")
    eager = copy.deepcopy(attention)
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    x, mask = inputs(6), torch.ones(2, 1, 6, 6).tril().bool()
    mask[1, :, :, :2] = False  # two queries of padding
    documents = torch.tensor([0, 0, 0, 1, 2, 2])[None]
    for arguments in (
        {"mask": mask}, {"positions": torch.arange(6) * 3}, {"segment_ids": documents},
    ):  # fmt: skip
        actual, expected = (
            output_and_grads(compiled, attention, x, **arguments),
            output_and_grads(eager, eager, x, **arguments),
        )
        torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-5)
    cache = KeyValueCache(6)
    with torch.inference_mode():  # what a graph leaves behind must serve training, too
        parts = [compiled(x[:, :4], cache=cache), compiled(x[:, 4:], cache=cache)]
        torch.testing.assert_close(torch.cat(parts, dim=1), eager(x), rtol=1e-4, atol=1e-5)
    assert output_and_grads(compiled, attention, x)[1].isfinite().all()
