"""DIFF V1 against the authors' layer, written down again from their flash file.

github microsoft/unilm, Diff-Transformer/multihead_flashdiff_1.py at 768a3c8: interleaved rotary,
pairs side by side, and under GQA one (k1, k2, v) for each group of output heads.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from small_layers import D_MODEL, build, inputs
from torch import Tensor

from difftransformer.models.attention.diff_v1 import DifferentialAttention

T, HEAD_DIM = 11, 6


def interleaved_rotary(x: Tensor, theta: float = 100.0) -> Tensor:
    """[B, T, n, d]: dimensions 2i and 2i + 1 turn together."""
    angles = torch.arange(T)[:, None] * theta ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    turns = torch.polar(torch.ones_like(angles), angles)[:, None]
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns).flatten(-2)


def authors_layer(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, layer: DifferentialAttention
) -> Tensor:
    B, H, G, d = len(x), layer.num_heads, layer.num_kv_heads, HEAD_DIM
    q = interleaved_rotary((x @ w_q.T).view(B, T, 2 * H, d)).view(B, T, H, 2, d)
    k = interleaved_rotary((x @ w_k.T).view(B, T, 2 * G, d)).view(B, T, G, 2, d)
    v = (x @ w_v.T).view(B, T, G, 2 * d)

    def flash_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (part.repeat_interleave(H // G, dim=2) for part in (k, v))
        scores = (q.transpose(1, 2) @ k.permute(0, 2, 3, 1)) / math.sqrt(d)
        scores = scores + torch.full((T, T), -math.inf).triu(1)
        return (scores.softmax(-1) @ v.transpose(1, 2)).transpose(1, 2)

    lambda_1 = torch.exp(torch.sum(layer.lambda_q1 * layer.lambda_k1))
    lambda_2 = torch.exp(torch.sum(layer.lambda_q2 * layer.lambda_k2))
    lambda_init = 0.8 - 0.6 * math.exp(-0.3 * layer.layer_index)
    lambda_full = lambda_1 - lambda_2 + lambda_init
    attn = flash_attention(q[..., 0, :], k[..., 0, :], v)
    attn = attn - lambda_full * flash_attention(q[..., 1, :], k[..., 1, :], v)
    assert layer.head_norm is not None
    attn = F.rms_norm(attn, (2 * d,), layer.head_norm.weight, 1e-5) * (1 - lambda_init)
    return attn.reshape(B, T, H * 2 * d) @ layer.o_proj.weight.T


def to_interleaved(rows: Tensor) -> Tensor:
    """Reorder the rows of each head from halves (i, i + d/2) to neighbours (2i, 2i + 1)."""
    return rows.unflatten(0, (-1, 2, HEAD_DIM // 2)).transpose(1, 2).flatten(0, 2)


@pytest.mark.parametrize("num_kv_heads", [4, 2, 1])
def test_diff_v1_is_the_authors_layer_after_permuting_rows(num_kv_heads: int) -> None:
    options = {"variant": "diff_v1", "head_dim": HEAD_DIM, "num_heads": 4}
    layer = build({**options, "num_kv_heads": num_kv_heads}, "blocked", layer_index=3)
    assert isinstance(layer, DifferentialAttention)
    x, rope = inputs(layer, T)
    sizes = [2 * n * HEAD_DIM for n in (4, num_kv_heads, num_kv_heads)]
    w_q, w_k, w_v = torch.split(layer.qkv_proj.weight, sizes)
    expected = authors_layer(x, to_interleaved(w_q), to_interleaved(w_k), w_v, layer)
    assert expected.shape == (2, T, D_MODEL)
    torch.testing.assert_close(layer(x, rope), expected, rtol=1e-5, atol=1e-5)
