"""Grouped DIFF against the layer of Motif-2-12.7B, and against V1 where they must agree.

What github MotifTechnologies/vllm at 477e4d7 computes, written anew: queries of a group as its
signal heads and then its noise head, keys and values in pairs, and attention of width d to each
half of the values.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from small_layers import D_MODEL, build, inputs
from torch import Tensor

from difftransformer.models.attention.diff_v1 import DifferentialAttention
from difftransformer.models.attention.grouped_diff import GroupedDifferentialAttention
from difftransformer.models.attention.maps import attention_maps
from difftransformer.models.rotary import apply_rope

T, d = 11, 6


def plain_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """[B, T, heads, d] each; every key/value head serves as many neighboring queries."""
    k, v = (part.repeat_interleave(q.shape[2] // part.shape[2], dim=2) for part in (k, v))
    scores = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(d)
    scores = scores + torch.full((T, T), -math.inf).triu(1)
    return torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v)


def published(layer: DifferentialAttention, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """The layer of Motif-2-12.7B, but for the depth that lambda_init counts."""
    B, G = len(x), layer.num_kv_heads
    ratio = layer.num_heads // G
    w_q, w_k, w_v = torch.split(layer.qkv_proj.weight, [(ratio + 1) * G * d, 2 * G * d, 2 * G * d])
    q, k = (
        apply_rope((x @ w.T).view(B, T, -1, d).transpose(1, 2), rope).transpose(1, 2)
        for w in (w_q, w_k)
    )
    stripes = q.reshape(B, T, G, ratio + 1, d)
    q1, q2 = stripes[..., :ratio, :].flatten(2, 3), stripes[..., ratio:, :].flatten(2, 3)
    (k1, k2), (v1, v2) = (
        part.reshape(B, T, G, 2, d).unbind(3) for part in (k, (x @ w_v.T).view(B, T, -1, d))
    )
    first = torch.cat([plain_attention(q1, k1, v1), plain_attention(q1, k1, v2)], dim=-1)
    second = torch.cat([plain_attention(q2, k2, v1), plain_attention(q2, k2, v2)], dim=-1)
    lambda_1 = torch.exp(torch.sum(layer.lambda_q1 * layer.lambda_k1))
    lambda_2 = torch.exp(torch.sum(layer.lambda_q2 * layer.lambda_k2))
    out = first - (lambda_1 - lambda_2 + layer.lambda_init) * second.repeat_interleave(ratio, dim=2)
    assert layer.head_norm is not None
    out = F.rms_norm(out, (2 * d,), layer.head_norm.weight, 1e-5) * (1 - layer.lambda_init)
    return out.flatten(2) @ layer.o_proj.weight.T


@pytest.mark.parametrize("backend", ["eager", "sdpa", "blocked"])
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(2, 2), (4, 2), (6, 2), (8, 2), (5, 1)])
def test_it_is_the_published_layer(num_heads: int, num_kv_heads: int, backend: str) -> None:
    heads = {"head_dim": d, "num_heads": num_heads, "num_kv_heads": num_kv_heads}
    layer = build({"variant": "grouped_diff", **heads}, backend, layer_index=3)
    assert isinstance(layer, GroupedDifferentialAttention)
    x, rope = inputs(layer, T)
    expected = published(layer, x, rope)
    assert expected.shape == (2, T, D_MODEL)
    torch.testing.assert_close(layer(x, rope), expected, rtol=1e-5, atol=1e-5)


def test_with_as_many_noise_heads_as_signal_heads_it_is_v1() -> None:
    heads = {"head_dim": d, "num_heads": 3, "num_kv_heads": 3}
    grouped, v1 = (
        build({"variant": name, **heads}, "sdpa") for name in ("grouped_diff", "diff_v1")
    )
    v1.load_state_dict(grouped.state_dict())
    x, rope = inputs(v1, T)
    torch.testing.assert_close(grouped(x, rope), v1(x, rope), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(attention_maps(grouped, x, rope), attention_maps(v1, x, rope))


def test_signal_heads_of_a_group_subtract_the_same_map() -> None:
    heads = {"head_dim": d, "num_heads": 6, "num_kv_heads": 2}
    plain, subtracting = (
        build({"variant": "grouped_diff", "lambda_fixed": lam, **heads}, "eager")
        for lam in (0.0, 1.0)
    )
    x, rope = inputs(subtracting, T)
    noise = attention_maps(plain, x, rope) - attention_maps(subtracting, x, rope)
    torch.testing.assert_close(noise.sum(-1), torch.ones(2, 6, T))
    by_group = noise.view(2, 2, 3, T, T)
    torch.testing.assert_close(by_group, by_group[:, :, :1].expand_as(by_group))
    assert (by_group[:, 0] - by_group[:, 1]).abs().max() > 0.1


def test_num_heads_multiplier_sets_the_ratio_and_adds_no_keys() -> None:
    shared = {"variant": "grouped_diff", "head_dim": 4, "num_heads": 4, "heads_per_kv_head": 2}
    layers = [build({**shared, "num_heads_multiplier": layer}, "eager") for layer in (1, 1.5, 2.5)]
    actual = [(layer.num_heads, layer.num_kv_heads, layer.num_q_heads) for layer in layers]
    assert actual == [(4, 2, 6), (6, 2, 8), (10, 2, 12)]
