"""DIFF V1 and V2 against the authors' layers, written down again from their flash files.

github microsoft/unilm, Diff-Transformer/multihead_flashdiff_1.py at 768a3c8: interleaved rotary,
pairs side by side, and under GQA one (k1, k2, v) for each group of output heads;
Diff-Transformer/Diff-Transformer-V2/multihead_flashdiffv2.py at 31646c5.
"""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from small_layers import D_MODEL, build, inputs
from torch import Tensor

from difftransformer.errors import CheckpointError
from difftransformer.models.unilm import load_unilm_state_dict, unilm_state_dict

T, HEAD_DIM = 11, 6


def interleaved_rotary(x: Tensor, theta: float = 100.0) -> Tensor:
    """[B, T, n, d]: dimensions 2i and 2i + 1 turn together."""
    angles = torch.arange(T)[:, None] * theta ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    turns = torch.polar(torch.ones_like(angles), angles)[:, None]
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns).flatten(-2)


def flash_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """[B, T, n, d], key/value heads repeated for the queries that share them."""
    k, v = (part.repeat_interleave(q.shape[2] // k.shape[2], dim=2) for part in (k, v))
    scores = (q.transpose(1, 2) @ k.permute(0, 2, 3, 1)) / math.sqrt(q.shape[-1])
    scores = scores + torch.full((T, T), -math.inf).triu(1)
    return (scores.softmax(-1) @ v.transpose(1, 2)).transpose(1, 2)


def authors_v1(x: Tensor, w: dict[str, Tensor], G: int, depth: int) -> Tensor:
    B, d = len(x), HEAD_DIM
    q = interleaved_rotary((x @ w["q_proj.weight"].T).view(B, T, -1, d)).view(B, T, -1, 2, d)
    k = interleaved_rotary((x @ w["k_proj.weight"].T).view(B, T, -1, d)).view(B, T, G, 2, d)
    v = (x @ w["v_proj.weight"].T).view(B, T, G, 2 * d)
    lambda_1 = torch.exp(torch.sum(w["lambda_q1"] * w["lambda_k1"]))
    lambda_2 = torch.exp(torch.sum(w["lambda_q2"] * w["lambda_k2"]))
    lambda_init = 0.8 - 0.6 * math.exp(-0.3 * depth)
    attn = flash_attention(q[..., 0, :], k[..., 0, :], v)
    attn = attn - (lambda_1 - lambda_2 + lambda_init) * flash_attention(
        q[..., 1, :], k[..., 1, :], v
    )
    attn = F.rms_norm(attn, (2 * d,), w["subln.weight"], 1e-5) * (1 - lambda_init)
    return attn.flatten(2) @ w["out_proj.weight"].T


def authors_v2(x: Tensor, w: dict[str, Tensor]) -> Tensor:
    q, k, v = ((x @ w[f"{n}_proj.weight"].T).view(len(x), T, -1, HEAD_DIM) for n in "qkv")
    attn = flash_attention(interleaved_rotary(q), interleaved_rotary(k), v)
    lam = torch.sigmoid(x @ w["lambda_proj.weight"].T).unsqueeze(-1)
    return (attn[:, :, 0::2] - lam * attn[:, :, 1::2]).flatten(2) @ w["o_proj.weight"].T


@pytest.mark.parametrize("num_kv_heads", [4, 2, 1])
def test_diff_v1_equals_the_unilm_layer(num_kv_heads: int) -> None:
    options = {"variant": "diff_v1", "head_dim": HEAD_DIM, "num_heads": 4}
    layer = build({**options, "num_kv_heads": num_kv_heads}, "blocked", layer_index=3)
    x, rope = inputs(layer, T)
    expected = authors_v1(x, unilm_state_dict(layer), num_kv_heads, depth=3)
    assert expected.shape == (2, T, D_MODEL)
    torch.testing.assert_close(layer(x, rope), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_kv_heads", [4, 2, 1])
def test_diff_v2_equals_the_unilm_layer(num_kv_heads: int) -> None:
    options = {"variant": "diff_v2", "head_dim": HEAD_DIM, "num_heads": 4}
    layer = build({**options, "num_kv_heads": num_kv_heads}, "sdpa")
    x, rope = inputs(layer, T)
    torch.testing.assert_close(
        layer(x, rope), authors_v2(x, unilm_state_dict(layer)), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("variant", ["diff_v1", "diff_v2"])
def test_unilm_weights_round_trip(variant: str) -> None:
    options = {"variant": variant, "head_dim": HEAD_DIM, "num_heads": 4, "num_kv_heads": 2}
    layer, other = build(options, "sdpa"), build(options, "sdpa")
    for parameter in other.parameters():
        parameter.data.zero_()
    load_unilm_state_dict(other, unilm_state_dict(layer))
    for name, tensor in layer.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_loading_unfit_weights_leaves_the_layer_unchanged() -> None:
    options = {"variant": "diff_v1", "head_dim": HEAD_DIM, "num_heads": 4}
    layer = build(options, "sdpa")
    before = copy.deepcopy(layer.state_dict())
    good = unilm_state_dict(build({**options, "norm": True}, "sdpa"))
    for spoiled, why in (
        ({**good, "more": good["subln.weight"]}, "more is unknown"),
        ({name: t for name, t in good.items() if name != "lambda_k2"}, "lacks lambda_k2"),
        (
            {**good, "out_proj.weight": good["out_proj.weight"][:, 1:]},
            r"out_proj.weight: has shape",
        ),
    ):
        with pytest.raises(CheckpointError, match=why):
            load_unilm_state_dict(layer, spoiled)
    assert all(torch.equal(layer.state_dict()[name], tensor) for name, tensor in before.items())
    for other in ({**options, "norm": False}, {**options, "variant": "dint"}):
        with pytest.raises(CheckpointError, match=r"subln|published no layer|head_norm"):
            unilm_state_dict(build(other, "sdpa"))
