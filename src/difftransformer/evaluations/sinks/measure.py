"""Attention sinks: the share of a head's attention on the first token of a window.

Shapes: N = windows, B = windows in memory, T = positions, H = heads, L = layers, Q = queries from
``first_query`` on.
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
    """Return the mean attention on a window's first token, over windows, queries, layers and heads.

    Returns:
        share: absolute weight of the first token divided by the sum of absolute weights; 0 for a
        row without weights. share_l{l}: share in layer l, None for a layer without attention.
        sink_heads: fraction of heads whose mean share exceeds ``THRESHOLD``. weight: absolute
        weight of the first token. mass: sum of absolute weights, 1 for softmax. uniform: share
        under equal weights. tokens. Share, weight and mass have per-item scores by window.

    Raises:
        CheckpointError: The maps of a pretrained model cannot be read.
        DataError: The validation split is missing or too short.
    """
    by_layer: dict[int, list[Tensor]] = defaultdict(list)
    first = suite.first_query - 1
    tokens = 0
    for batch in validation_inputs(suite, context):
        (layers,) = iter_attention_blocks(context.scorer, batch, suite.seq_len)
        for rows in layers:
            by_query = first_token(rows.weights[:, :, first:])
            by_layer[rows.layer].append(by_query.mean(dim=-1).cpu())  # [3, B, H]
        tokens += batch.numel()
    layers_with_attention = sorted(by_layer)
    by_window = torch.stack([torch.cat(by_layer[layer], dim=1) for layer in layers_with_attention])
    share, weight, mass = by_window.mean(dim=2).unbind(dim=1)  # [L, 3, N, H] to [L, H]
    metrics: Metrics = {
        layer_metric("share", layer): None for layer in range(context.scorer.model.num_layers)
    }
    for layer, heads in zip(layers_with_attention, share, strict=True):
        metrics[layer_metric("share", layer)] = float(heads.mean())
    queries = torch.arange(suite.first_query, suite.seq_len + 1, dtype=torch.float64)
    metrics |= {
        "share": float(share.mean()),
        "sink_heads": float((share > THRESHOLD).double().mean()),
        "weight": float(weight.mean()),
        "mass": float(mass.mean()),
        "uniform": float((1 / queries).mean()),
        "tokens": tokens,
    }
    window_means = zip(("share", "weight", "mass"), by_window.mean(dim=(0, 3)), strict=True)
    per_item = {name: per_item_scores("windows", values.tolist()) for name, values in window_means}
    return EvalResult(metrics, per_item)


def first_token(weights: Tensor) -> Tensor:
    """Return the attention on the first token of each query, [B, H, Q, T] -> float64 [3, B, H, Q].

    ``weights`` are those of B windows, H heads and Q queries on T positions. The three values are
    share (weight / mass), weight (its absolute value) and mass (the sum of absolute weights).
    """
    magnitudes = weights.double().abs()
    weight, mass = magnitudes[..., 0], magnitudes.sum(-1)
    share = torch.where(mass > 0, weight / mass, 0.0)
    return torch.stack((share, weight, mass))
