"""Every variant as its equations have it, head by head, from its options and weights alone.

Nothing here comes from the package: what a layer computes is compared with what it should. An
option that is left out has the default that the paper or the docs give.

Shapes: B = batch, T = positions, D = d_model, H output heads, G key/value heads, d = head_dim.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

THETA = 100.0
"""Base of the rotary frequencies in these tests."""
EPS = 1e-5

Options = dict[str, Any]
Weights = dict[str, Tensor]
Oracle = Callable[[Options, Weights, Tensor, int], Tensor]


def exact_output(options: Options, weights: Weights, x: Tensor, layer: int) -> Tensor:
    """The output [B, T, D] of a layer of 0-based index ``layer``, in the precision of ``x``."""
    oracle = ORACLES.get(options["variant"])
    assert oracle is not None, (
        f"{options['variant']} has no oracle: write its equations in tests/attention/oracles.py"
    )
    return oracle(options, weights, x, layer)


def exact_weights(layer: torch.nn.Module) -> Weights:
    """Copies of a layer's parameters in float64, to take gradients of."""
    named = layer.named_parameters()
    return {name: tensor.detach().double().requires_grad_() for name, tensor in named}


# --- pieces ---


def sizes(options: Options) -> tuple[int, int, int]:
    """H, G and d."""
    H = options["num_heads"]
    return H, options.get("num_kv_heads") or H, options["head_dim"]


def rotate(x: Tensor) -> Tensor:
    """Turn [B, T, d] at positions 0, 1, ...; dimensions i and i + d/2 turn together."""
    d = x.shape[-1]
    frequency = 1.0 / THETA ** (torch.arange(0, d, 2, dtype=torch.float32) / d)
    angle = torch.arange(x.shape[1], dtype=torch.float32)[:, None] * frequency
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def logits(q: Tensor, k: Tensor) -> Tensor:
    """q k' / sqrt(d) [B, T, T] of turned queries and keys, minus infinity in the future."""
    z = rotate(q) @ rotate(k).transpose(1, 2) / math.sqrt(q.shape[-1])
    future = torch.ones(z.shape[-2:], dtype=torch.bool).triu(1)
    return z.masked_fill(future, -math.inf)


def attention(q: Tensor, k: Tensor) -> Tensor:
    return torch.softmax(logits(q, k), dim=-1)


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt(x.pow(2).mean(dim=-1, keepdim=True) + eps) * gain


def lambda_init(setting: float | str, layer: int) -> float:
    """0.8 - 0.6 exp(-0.3 l) for the layer of 0-based index l, or the number that is given."""
    return 0.8 - 0.6 * math.exp(-0.3 * layer) if isinstance(setting, str) else setting


def project(x: Tensor, weight: Tensor, widths: list[int]) -> list[list[Tensor]]:
    """Parts of a joint projection, each a list of heads [B, T, width].

    ``widths`` holds (number of heads, width) flattened: [2H, d, 2G, d, ...].
    """
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    parts = torch.split(x @ weight.T, [n * width for n, width in pairs], dim=-1)
    return [list(part.split(width, dim=-1)) for part, (_, width) in zip(parts, pairs, strict=True)]


def joined(heads: list[Tensor], weights: Weights) -> Tensor:
    return torch.cat(heads, dim=-1) @ weights["o_proj.weight"].T


# --- the Transformer and its relatives ---


def softmax_heads(options: Options, weights: Weights, x: Tensor) -> Iterator[Tensor]:
    """softmax(Q_h K_h' / sqrt(d)) V_h of each head h."""
    H, G, d = sizes(options)
    q, k, v = project(x, weights["qkv_proj.weight"], [H, d, G, d, G, d])
    for h in range(H):
        g = h // (H // G)
        yield attention(q[h], k[g]) @ v[g]


def softmax(options: Options, weights: Weights, x: Tensor, layer: int) -> Tensor:
    heads = list(softmax_heads(options, weights, x))
    if options.get("norm", False):
        eps = options.get("norm_eps", EPS)
        heads = [rms_norm(o, weights["head_norm.weight"], eps) for o in heads]
    if options.get("gain") is not None:
        heads = [o * weights["head_gain"] for o in heads]
    return joined(heads, weights)


def gated(options: Options, weights: Weights, x: Tensor, layer: int) -> Tensor:
    width = 1 if options.get("gate", "headwise") == "headwise" else options["head_dim"]
    gates = (x @ weights["gate_proj.weight"].T).split(width, dim=-1)
    heads = softmax_heads(options, weights, x)
    return joined([torch.sigmoid(gates[h]) * o for h, o in enumerate(heads)], weights)


def with_sink(options: Options, weights: Weights, x: Tensor, sinks: Tensor) -> Tensor:
    """A_ij = exp(z_ij) / (exp(s_h) + sum_k exp(z_ik))."""
    H, G, d = sizes(options)
    q, k, v = project(x, weights["qkv_proj.weight"], [H, d, G, d, G, d])
    heads = []
    for h in range(H):
        g = h // (H // G)
        z = logits(q[h], k[g]).exp()
        heads.append(z / (sinks[h].exp() + z.sum(dim=-1, keepdim=True)) @ v[g])
    return joined(heads, weights)


def gpt_oss_sink(options: Options, weights: Weights, x: Tensor, layer: int) -> Tensor:
    return with_sink(options, weights, x, weights["sinks"])


def softmax_off_by_one(options: Options, weights: Weights, x: Tensor, layer: int) -> Tensor:
    return with_sink(options, weights, x, torch.zeros(options["num_heads"], dtype=x.dtype))


def dex_s(options: Options, weights: Weights, x: Tensor, layer: int) -> Tensor:
    H, _, d = sizes(options)
    selected = max(round(options.get("share", 1.0) * H), 1)
    own = weights["difference_proj.weight"].split(d)
    heads = list(softmax_heads(options, weights, x))
    for h in range(selected):
        w_d = own[h if options.get("difference", "layer") == "head" else 0]
        heads[h] = heads[h] - weights["lambda_learned"] * (heads[h] @ w_d.T)
    return joined(heads, weights)


# --- what two queries and keys each head of a differential variant has ---


class Pair(NamedTuple):
    """Queries and keys [B, T, d] of the two maps of a head, and the value that each meets."""

    q1: Tensor
    k1: Tensor
    q2: Tensor
    k2: Tensor
    v1: Tensor
    v2: Tensor


def v1_pairs(options: Options, weights: Weights, x: Tensor) -> Iterator[Pair]:
    H, G, d = sizes(options)
    q, k, v = project(x, weights["qkv_proj.weight"], [2 * H, d, 2 * G, d, G, 2 * d])
    for h in range(H):
        g = h // (H // G)
        yield Pair(q[2 * h], k[2 * g], q[2 * h + 1], k[2 * g + 1], v[g], v[g])


def shared_pairs(options: Options, weights: Weights, x: Tensor) -> Iterator[Pair]:
    """W_Q^i = W_Q + U_Q^i D_Q^i, and keys likewise."""
    H, G, d = sizes(options)
    w_q, w_k, w_v = weights["base_proj.weight"].split([H * d, G * d, 2 * G * d])
    down = weights["low_proj.weight"].split(options.get("rank") or d)
    up = [weights[f"updates.{i}.weight"] for i in range(4)]
    q = [(x @ (w_q + up[i] @ down[i]).T).split(d, dim=-1) for i in (0, 1)]
    k = [(x @ (w_k + up[i] @ down[i]).T).split(d, dim=-1) for i in (2, 3)]
    v = (x @ w_v.T).split(2 * d, dim=-1)
    for h in range(H):
        g = h // (H // G)
        yield Pair(q[0][h], k[0][g], q[1][h], k[1][g], v[g], v[g])


def grouped_pairs(options: Options, weights: Weights, x: Tensor) -> Iterator[Pair]:
    """Behind the signal heads of a group is the one noise head that all of them subtract."""
    H, G, d = sizes(options)
    ratio = H // G
    q, k, v = project(x, weights["qkv_proj.weight"], [H + G, d, 2 * G, d, G, 2 * d])
    for h in range(H):
        g, first = h // ratio, h // ratio * (ratio + 1)
        yield Pair(q[first + h % ratio], k[2 * g], q[first + ratio], k[2 * g + 1], v[g], v[g])


def v2_pairs(options: Options, weights: Weights, x: Tensor) -> Iterator[Pair]:
    """Neighbors 2h and 2h + 1, or h and H + h where they are paired across groups."""
    H, G, d = sizes(options)
    rows = weights["qkv_proj.weight"][: (2 * H + 2 * G) * d]
    q, k, v = project(x, rows, [2 * H, d, G, d, G, d])
    neighbors = options.get("pairing", "same_group") == "same_group"
    for h in range(H):
        i, j = (2 * h, 2 * h + 1) if neighbors else (h, H + h)
        f, g = i // (2 * H // G), j // (2 * H // G)
        yield Pair(q[i], k[f], q[j], k[g], v[f], v[g])


PAIRS: dict[str, Callable[[Options, Weights, Tensor], Iterator[Pair]]] = {
    "diff_v2": v2_pairs,
    "grouped_diff": grouped_pairs,
    "shared_diff": shared_pairs,
}
"""Where it is not V1's layout."""


def pairs_of(options: Options, weights: Weights, x: Tensor) -> Iterator[Pair]:
    return PAIRS.get(options["variant"], v1_pairs)(options, weights, x)


def exact_maps(options: Options, weights: Weights, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The two softmax maps [B, T, T] of each head."""
    for pair in pairs_of(options, weights, x):
        yield attention(pair.q1, pair.k1), attention(pair.q2, pair.k2)


# --- DIFF V1 and its relatives ---


def learned_v1(weights: Weights) -> Tensor:
    """What equation 2 adds to lambda_init."""
    first, second = (
        torch.exp((weights[f"lambda_q{i}"] * weights[f"lambda_k{i}"]).sum()) for i in (1, 2)
    )
    return first - second


def normed(options: Options, weights: Weights, o: Tensor) -> Tensor:
    if not options.get("norm", True):
        return o
    return rms_norm(o, weights["head_norm.weight"], options.get("norm_eps", EPS))


def differential(
    options: Options,
    weights: Weights,
    x: Tensor,
    layer: int,
    learned: Callable[[Weights], Tensor] = learned_v1,
) -> Tensor:
    """Equations 1 to 3; in `dint` (A1 - lambda A2 + lambda A3) V, rows of A3 running means.

    ``learned`` gives what is added to lambda_init, one number or [H], where lambda is not fixed.
    """
    start = lambda_init(options.get("lambda_init", "exponential"), layer)
    fixed, heads = options.get("lambda_fixed"), []
    for h, pair in enumerate(pairs_of(options, weights, x)):
        if fixed is None:
            own = learned(weights)
            lam = start + (own[h] if own.ndim else own)
        else:
            lam = start if fixed == "init" else fixed
        first, second = attention(pair.q1, pair.k1), attention(pair.q2, pair.k2)
        weight = first - lam * second
        if options["variant"] == "dint":
            rows = range(1, x.shape[1] + 1)
            weight = weight + lam * torch.stack([first[:, :i].mean(dim=1) for i in rows], dim=1)
        heads.append((1 - start) * normed(options, weights, weight @ pair.v1))
    return joined(heads, weights)


def tda(options: Options, weights: Weights, x: Tensor, layer: int) -> Tensor:
    """R_ij = max(0, q_i . k_j - beta sqrt(2 ln(i) / d))^p over i visible keys, q, k of length 1."""
    count = torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None]
    tau = options.get("beta", 1.0) * torch.sqrt(2 * torch.log(count) / options["head_dim"])
    fixed, heads = options.get("lambda_fixed"), []

    def thresholded(q: Tensor, k: Tensor) -> Tensor:
        q, k = (rotate(part) for part in (q, k))
        q, k = (part / part.norm(dim=-1, keepdim=True) for part in (q, k))
        return (q @ k.transpose(1, 2) - tau).clamp_min(0).pow(options.get("power", 2.0)).tril()

    for h, pair in enumerate(v1_pairs(options, weights, x)):
        start = options.get("lambda_init", 0.5)
        lam = start if fixed == "init" else fixed
        lam = weights["lambdas"][h].clamp(0, 1) if fixed is None else lam
        weight = thresholded(pair.q1, pair.k1) - lam * thresholded(pair.q2, pair.k2)
        heads.append(normed(options, weights, weight @ pair.v1))
    return joined(heads, weights)


def diff_v2(options: Options, weights: Weights, x: Tensor, layer: int) -> Tensor:
    """A1 V1 - sigmoid(lambda_h) A2 V2, with lambda projected from each token."""
    H, form, heads = options["num_heads"], options.get("lambda_form", "sigmoid"), []
    lam = x @ weights["qkv_proj.weight"][-H:].T
    factors = {"sigmoid": torch.sigmoid(lam), "raw": lam, "none": torch.ones_like(lam)}[form]
    for h, pair in enumerate(v2_pairs(options, weights, x)):
        first, second = attention(pair.q1, pair.k1) @ pair.v1, attention(pair.q2, pair.k2) @ pair.v2
        heads.append(first - factors[..., h : h + 1] * second)
    return joined(heads, weights)


ORACLES: dict[str, Oracle] = {
    "dex_s": dex_s,
    "diff_v1": differential,
    "diff_v2": diff_v2,
    "dint": differential,
    "gated": gated,
    "gpt_oss_sink": gpt_oss_sink,
    "grouped_diff": differential,
    "shared_diff": differential,
    "softmax": softmax,
    "softmax_off_by_one": softmax_off_by_one,
    "tda": tda,
}
