"""Attention sinks: how much of the heads' attention goes to the first token of a window.

Shapes: B = windows, T = positions, H = heads, L = layers, Q = queries that count.
"""

import torch
from torch import Tensor

from difftransformer.evaluation.subject import Metrics, Subject, validation_inputs
from difftransformer.evaluation.watching import watched_maps
from difftransformer.measurements.sinks.settings import Suite, layer_metric


def measure(suite: Suite, subject: Subject) -> Metrics:
    """Means over windows, queries, layers and heads.

    Returns:
        share: absolute weight of the first token over the sum of absolute weights; 0 of a row
        without weights. share_l{l}: the same in a layer. sink_heads: part of all heads whose mean
        share exceeds ``threshold``. weight: absolute weight of the first token as it is. mass: sum
        of absolute weights, 1 for softmax. uniform: share under equal weights. tokens.

    Raises:
        ConfigError: windows longer than the model's context.
        DataError: the validation split is missing or too short.
    """
    windows = validation_inputs(suite, subject)
    sums: dict[int, Tensor] = {}
    first = suite.first_query - 1

    def maps(layer: int, weights: Tensor) -> None:
        found = first_token(weights[:, :, first:]).sum(dim=1)  # over windows: [3, H, Q]
        sums[layer] = sums.get(layer, torch.zeros(())) + found.sum(dim=-1).cpu()

    count, tokens = 0, 0
    with watched_maps(subject.scorer.model, maps):
        for batch in windows:
            subject.scorer.states(batch)
            count += len(batch) * (suite.seq_len - first)
            tokens += batch.numel()
    means = torch.stack([sums[layer] for layer in sorted(sums)]) / count  # [L, 3, H]
    share, weight, mass = means.unbind(dim=1)
    by_layer: Metrics = {layer_metric(layer): float(row.mean()) for layer, row in enumerate(share)}
    queries = torch.arange(suite.first_query, suite.seq_len + 1, dtype=torch.float64)
    return by_layer | {
        "share": float(share.mean()),
        "sink_heads": float((share > suite.threshold).double().mean()),
        "weight": float(weight.mean()),
        "mass": float(mass.mean()),
        "uniform": float((1 / queries).mean()),
        "tokens": tokens,
    }


def first_token(weights: Tensor) -> Tensor:
    """Share, weight and mass of rows of weights [B, H, Q, T], float64 [3, B, H, Q]."""
    sizes = weights.double().abs()
    weight, mass = sizes[..., 0], sizes.sum(-1)
    share = torch.where(mass > 0, weight / mass, 0.0)
    return torch.stack((share, weight, mass))
