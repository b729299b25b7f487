"""What the causal form of DINT promises beyond the contract."""

import pytest
import torch
from small_layers import build, inputs

from difftransformer.models.attention import dint
from difftransformer.models.attention.maps import attention_maps, iter_blocks
from difftransformer.models.cache import PrefixCache
from difftransformer.models.kernels.eager import causal_mask

OPTIONS = {"variant": "dint", "head_dim": 4, "num_heads": 4, "num_kv_heads": 2}


def test_rows_sum_to_one() -> None:
    layer = build(OPTIONS, "eager")
    maps = attention_maps(layer, *inputs(layer, 12))
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 4, 12))


def test_the_running_mean_is_the_mean_over_what_a_causal_mask_shows() -> None:
    rows = torch.randn(2, 9, 4, 3, generator=torch.Generator().manual_seed(0))
    mask = causal_mask(5, 9, rows.device).view(1, 1, 5, 9)
    torch.testing.assert_close(dint._running_mean(rows, 5, None), dint._running_mean(rows, 5, mask))


def test_the_mean_counts_no_padding_while_decoding() -> None:
    layer = build(OPTIONS, "blocked")
    x, rope = inputs(layer, 90)
    alone = layer(x[:1, 5:], (rope[0][5:], rope[1][5:]))
    mask = torch.ones(90, 90, dtype=torch.bool).tril()
    mask[:, :5] = torch.eye(90, dtype=torch.bool)[:, :5]
    cache, parts = PrefixCache(90), []
    for start, stop in ((0, 80), (80, 81), (81, 90)):
        rows = slice(start, stop)
        turn = (rope[0][rows], rope[1][rows])
        parts.append(layer(x[:1, rows], turn, mask[None, None, rows, :stop], cache))
    torch.testing.assert_close(torch.cat(parts, 1)[:, 5:], alone, rtol=1e-5, atol=1e-5)


def test_rows_before_a_block_are_summed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = build(OPTIONS, "eager")
    x, rope = inputs(layer, 13)
    full = attention_maps(layer, x, rope)
    monkeypatch.setattr(dint, "ROWS", 3)
    *_, last = iter_blocks(layer, x, rope, 4)
    torch.testing.assert_close(last.weights, full[:, :, 12:])
