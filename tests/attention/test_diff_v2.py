"""DIFF V2 against the authors' pseudo-code, written down again, to the bit."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_layers import D_MODEL, build, inputs
from torch import Tensor

from difftransformer.models.attention.diff_v2 import DifferentialAttentionV2
from difftransformer.models.rotary import split_heads

T, d = 11, 6


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """[B, T, heads, d] each; heads of one group lie side by side."""
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=d**-0.5, enable_gqa=True)
    return out.transpose(1, 2)


def diff_attn_v2(q: Tensor, k: Tensor, v: Tensor, lam: Tensor, ablation: int | None) -> Tensor:
    """q [B, T, 2h, d], k and v [B, T, h_kv, d], lam [B, T, h, 1]."""
    attn = flash_attn_func(q, k, v)
    attn1, attn2 = attn[:, :, 0::2], attn[:, :, 1::2]
    if ablation == 1:
        nh = attn.size(2)
        attn1, attn2 = attn[:, :, : nh // 2], attn[:, :, nh // 2 :]
    if ablation == 2:
        return attn1 - attn2
    lam_val = lam if ablation == 3 else torch.sigmoid(lam)
    return attn1 - lam_val * attn2


ABLATIONS: dict[int | None, dict[str, Any]] = {
    None: {},
    1: {"pairing": "across_groups"},
    2: {"lambda_form": "none"},
    3: {"lambda_form": "raw"},
}


@pytest.mark.parametrize("ablation", ABLATIONS)
@pytest.mark.parametrize("h_kv", [4, 2, 1])
def test_it_equals_the_authors_pseudo_code_bit_for_bit(h_kv: int, ablation: int | None) -> None:
    h = 4
    options = {"variant": "diff_v2", "head_dim": d, "num_heads": h, "num_kv_heads": h_kv}
    layer = build({**options, **ABLATIONS[ablation]}, "sdpa")
    assert isinstance(layer, DifferentialAttentionV2)
    x, rope = inputs(layer, T)
    *heads, lam = split_heads(layer.qkv_proj(x), rope, (2 * h, h_kv, h_kv), d)
    q, k, v = (part.transpose(1, 2) for part in heads)
    expected = layer.o_proj(diff_attn_v2(q, k, v, lam.unsqueeze(-1), ablation).flatten(2))
    assert expected.shape == (2, T, D_MODEL)
    assert torch.equal(layer(x, rope), expected)


def test_pairs_across_groups_are_another_function_where_there_are_groups() -> None:
    options = {"variant": "diff_v2", "head_dim": d, "num_heads": 4, "num_kv_heads": 2}
    ours = build(options, "eager")
    other = build({**options, "pairing": "across_groups"}, "eager")
    x, rope = inputs(ours, T)
    assert (ours(x, rope) - other(x, rope)).abs().max() > 0.1


def test_it_has_the_parameters_of_half_as_many_ordinary_heads_again() -> None:
    shared = {"head_dim": 4, "num_heads": 4, "heads_per_kv_head": 2}
    wide = build({"variant": "softmax", **shared, "num_heads_multiplier": 1.5}, "eager")
    ours = build({"variant": "diff_v2", **shared}, "eager")
    assert (wide.num_heads, wide.num_kv_heads) == (6, 2)
    assert (ours.num_heads, ours.num_kv_heads) == (4, 2)
    counts = [sum(parameter.numel() for parameter in layer.parameters()) for layer in (wide, ours)]
    assert counts[1] - counts[0] == 4 * D_MODEL  # lambda's projection
