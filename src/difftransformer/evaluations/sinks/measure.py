"""Attention sinks: how much of the heads' attention goes to the first token of a window.

Shapes: N = windows, B = those in memory, T = positions, H = heads, L = layers, Q = queries that
count.
"""

from collections import defaultdict

import torch
from torch import Tensor

from difftransformer.evaluation.attention_capture import iter_attention_blocks
from difftransformer.evaluation.context import (
    EvalContext,
    EvalResult,
    Metrics,
    per_item_scores,
    validation_inputs,
)
from difftransformer.evaluations.sinks.settings import THRESHOLD, Suite
from difftransformer.models.config import layer_metric


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Means over windows, queries, layers and heads.

    Returns:
        share: absolute weight of the first token over the sum of absolute weights; 0 of a row
        without weights. share_l{l}: the same in a layer, None where it has no attention.
        sink_heads: part of all heads whose mean share exceeds ``threshold``. weight: absolute
        weight of the first token as it is. mass: sum of absolute weights, 1 for softmax. uniform:
        share under equal weights. tokens. Share, weight and mass are known by window, too.

    Raises:
        CheckpointError: the maps of a model from elsewhere cannot be read.
        DataError: the validation split is missing or too short.
    """
    windows = validation_inputs(suite, context)
    seen: dict[int, list[Tensor]] = defaultdict(list)
    first = suite.first_query - 1

    tokens = 0
    for batch in windows:
        (layers,) = iter_attention_blocks(context.scorer, batch, suite.seq_len)
        for rows in layers:
            share = first_token(rows.weights[:, :, first:]).mean(dim=-1)
            seen[rows.layer].append(share.cpu())  # [3, B, H]
        tokens += batch.numel()
    attending = sorted(seen)
    by_window = torch.stack([torch.cat(seen[layer], dim=1) for layer in attending])
    share, weight, mass = by_window.mean(dim=2).unbind(dim=1)  # [L, 3, N, H] to [L, H]
    known = {layer: float(row.mean()) for layer, row in zip(attending, share, strict=True)}
    by_layer: Metrics = {
        layer_metric("share", layer): known.get(layer)
        for layer in range(context.scorer.model.num_layers)
    }
    queries = torch.arange(suite.first_query, suite.seq_len + 1, dtype=torch.float64)
    metrics = by_layer | {
        "share": float(share.mean()),
        "sink_heads": float((share > THRESHOLD).double().mean()),
        "weight": float(weight.mean()),
        "mass": float(mass.mean()),
        "uniform": float((1 / queries).mean()),
        "tokens": tokens,
    }
    means_of = zip(("share", "weight", "mass"), by_window.mean(dim=(0, 3)), strict=True)  # [3, N]
    per_item = {name: per_item_scores("windows", one.tolist()) for name, one in means_of}
    return EvalResult(metrics, per_item)


def first_token(weights: Tensor) -> Tensor:
    """Share, weight and mass of rows of weights [B, H, Q, T], float64 [3, B, H, Q]."""
    sizes = weights.double().abs()
    weight, mass = sizes[..., 0], sizes.sum(-1)
    share = torch.where(mass > 0, weight / mass, 0.0)
    return torch.stack((share, weight, mass))
