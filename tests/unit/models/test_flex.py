from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from difftransformer.models.kernels import eager, flex

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.mark.parametrize("queries", [1, 5, 140])
@pytest.mark.parametrize("masked", [False, True])
def test_flex_attention_equals_eager_attention(masked: bool, queries: int) -> None:
    generator = torch.Generator().manual_seed(0)
    keys = queries + 4
    q, k, v = (torch.randn(2, heads, keys, 16, generator=generator) for heads in (4, 2, 2))
    q = q[:, :, 4:]
    mask = (torch.rand(2, 1, queries, keys, generator=generator) > 0.3) if masked else None
    if mask is not None:
        mask[..., 0] = True
    actual_tensors = flex.attention_with_lse(q, k, v, scale=0.3, mask=mask)
    expected = eager.attention_with_lse(q, k, v, scale=0.3, mask=mask)
    for actual, wanted in zip(actual_tensors, expected, strict=True):
        torch.testing.assert_close(actual, wanted)


@pytest.mark.parametrize(
    ("queries", "keys"),
    [(5, 5), (128, 128), (129, 129), (300, 300), (3, 200), (130, 513), (128, 384), (257, 513)],
)
def test_causal_blocks_equal_those_of_create_block_mask(queries: int, keys: int) -> None:
    from torch.nn.attention.flex_attention import create_block_mask

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j <= i + keys - queries

    actual = flex.causal_blocks(queries, keys, CPU)
    tried = create_block_mask(seen, None, None, queries, keys, device="cpu")
    for side in ("kv", "q"):
        for full in ("", "full_"):
            counts, places = (f"{full}{side}_{what}" for what in ("num_blocks", "indices"))
            assert torch.equal(getattr(actual, counts), getattr(tried, counts))
            for row, count in enumerate(getattr(tried, counts)[0, 0]):
                ours, theirs = (
                    getattr(blocks, places)[0, 0, row, :count] for blocks in (actual, tried)
                )
                assert torch.equal(ours.sort().values, theirs.sort().values)


def test_static_lengths_make_block_tables_constants() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def record(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex.attention_with_lse(q, k, v, scale=0.3, mask=None)[0]

    torch.compiler.reset()
    compiled = torch.compile(attend, backend=record, fullgraph=True)
    for length in (200, 300):
        q, k, v = torch.randn(3, 1, 2, length, 16).unbind()
        torch.testing.assert_close(compiled(q, k, v), attend(q, k, v))
    made = [any(node.target is torch.arange for node in graph.graph.nodes) for graph in graphs]
    assert made == [False, True]  # the second for any length
