"""Similarity of the two attention maps of a differential head, row by row.

    spearman  Spearman's rank correlation; ties get the mean of their ranks
    pearson   Pearson's correlation
    js        Jensen-Shannon divergence in nats of the two rows, each divided by its sum
    cosine    cosine distance, 1 - cosine similarity

Shapes: K = keys. ``mask`` (bool) is True for the keys of a row that count. Undefined values, such
as the correlation of a row of equal weights, are NaN.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from difftransformer.evaluations.attention_maps.settings import num_salient

_LOG_TOLERANCE = 1e-12


class RankedMap(NamedTuple):
    """An attention map, and the ranks of its weights in each row.

    Both are float64 [..., K] with rows over K keys.
    """

    weights: Tensor
    ranks: Tensor


def rank_map(weights: Tensor, mask: Tensor) -> RankedMap:
    """Return an attention map with the ranks of its weights in each row over keys.

    ``mask`` is True for the keys of a row that count.
    """
    return RankedMap(weights, ranks(weights, mask))


def similarity(first: RankedMap, second: RankedMap, mask: Tensor) -> dict[str, Tensor]:
    """Return the four similarity measures of two attention maps by name, one value per row.

    The names are spearman, pearson, js (Jensen-Shannon divergence) and cosine (distance). ``mask``,
    bool [..., K], is True for the keys of a row that count. The values have shape [...].
    """
    return {
        "spearman": correlation(first.ranks, second.ranks, mask),
        "pearson": correlation(first.weights, second.weights, mask),
        "js": js_divergence(first.weights, second.weights, mask),
        "cosine": cosine_distance(first.weights, second.weights, mask),
    }


def ranks(values: Tensor, mask: Tensor) -> Tensor:
    """Return the rank of each value in its row, from 1, [..., K] -> [..., K].

    Equal values get the mean of their ranks. Keys outside the mask rank last.
    """
    ordered, order = values.masked_fill(~mask, torch.inf).sort(dim=-1)
    last_index = values.shape[-1] - 1
    index = torch.arange(last_index + 1, device=values.device).expand_as(order)
    changes = ordered[..., 1:] != ordered[..., :-1]
    edge = torch.ones_like(mask[..., :1]).expand(*changes.shape[:-1], 1)
    starts, ends = torch.cat((edge, changes), dim=-1), torch.cat((changes, edge), dim=-1)
    first = index.where(starts, 0).cummax(dim=-1).values
    last = index.where(ends, last_index).flip(-1).cummin(dim=-1).values.flip(-1)
    mean_rank = (first + last).to(values.dtype) / 2 + 1
    by_key = torch.empty_like(values).scatter_(-1, order, mean_rank)
    return by_key.masked_fill(values.isnan(), torch.nan)


def correlation(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Return Pearson's correlation of x and y in each row, [..., K] -> [...]."""
    count = mask.sum(dim=-1, keepdim=True)
    centered, varies = [], []
    for values in (x, y):
        mean = values.where(mask, 0).sum(dim=-1, keepdim=True) / count
        centered.append((values - mean).where(mask, 0))
        lowest = values.masked_fill(~mask, torch.inf).amin(dim=-1)
        varies.append(values.masked_fill(~mask, -torch.inf).amax(dim=-1) > lowest)
    a, b = centered
    result = (a * b).sum(-1) / (a.square().sum(-1).sqrt() * b.square().sum(-1).sqrt())
    return result.where(varies[0] & varies[1], torch.nan)


def js_divergence(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence of x and y in each row in nats, [..., K] -> [...]."""
    p, q = normalize(x, mask), normalize(y, mask)
    divergence = entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2
    return divergence.clamp_min(0)  # NaN stays


def cosine_distance(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Return 1 - cosine similarity of x and y in each row, [..., K] -> [...].

    A row of zeros gives NaN.
    """
    x, y = x.where(mask, 0), y.where(mask, 0)
    norms = x.square().sum(-1).sqrt() * y.square().sum(-1).sqrt()
    return (1 - (x * y).sum(-1) / norms).where(norms > 0, torch.nan)


def normalize(values: Tensor, mask: Tensor) -> Tensor:
    """Return absolute values divided by their sum in each row, [..., K]; NaN for a row of zeros."""
    magnitudes = values.abs().where(mask, 0)
    return magnitudes / magnitudes.sum(dim=-1, keepdim=True)


def entropy(distribution: Tensor) -> Tensor:
    """Return the entropy of each row of probabilities in nats, [..., K] -> [...]."""
    nats: Tensor = torch.special.entr(distribution)
    return nats.sum(-1)


def surrogate_map(first: Tensor, second: Tensor, mask: Tensor, noise: Tensor) -> Tensor:
    """Return a random second map that is as similar to ``first`` as ``second`` is (ours).

    In each row the log weights of ``second`` are regressed on those of ``first``, and the residuals
    are permuted (Freedman and Lane 1983). Over all tokens both are equally similar to ``first``.
    Salient tokens are few, and their weights span a narrow range; if they are less similar only for
    that reason, they are less similar in the surrogate, too.

    Args:
        first: The positive map, float64 [..., K], with rows over K keys.
        second: The subtracted map, float64 [..., K].
        mask: Keys that count, bool [..., K]; may lack leading dimensions.
        noise: Integers that define the permutation, [..., K].

    Returns:
        float64 [..., K], 0 outside the mask; NaN in a row where a weight is 0, or all of ``first``
        are equal.
    """
    count = mask.sum(dim=-1, keepdim=True)

    def centered_logs(weights: Tensor) -> Tensor:
        logs = weights.log().where(mask, 0)
        return (logs - logs.sum(dim=-1, keepdim=True) / count).where(mask, 0)

    x, y = centered_logs(first), centered_logs(second)
    x = x.masked_fill((x.abs() < _LOG_TOLERANCE).all(dim=-1, keepdim=True), torch.nan)
    fitted = (x * y).sum(-1, keepdim=True) / x.square().sum(-1, keepdim=True) * x
    # Both index tensors list the keys of the mask before all others.
    targets = (~mask).byte().argsort(dim=-1, stable=True).expand_as(x)
    sources = noise.masked_fill(~mask, torch.iinfo(noise.dtype).max).argsort(dim=-1)
    residuals = torch.empty_like(x).scatter_(-1, targets, (y - fitted).gather(-1, sources))
    return (fitted + residuals).masked_fill(~mask, -torch.inf).softmax(dim=-1)


def splitmix64(counters: Tensor) -> Tensor:
    """Return a pseudorandom int64 for each int64 counter (SplitMix64, Steele et al. 2014).

    The same counter gives the same number on every device, in blocks and batches of any size.
    """
    bits = counters * -0x61C8864680B583EB
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1)):
        bits = (bits ^ (bits >> shift & (1 << 64 - shift) - 1)) * factor
    return bits


def most_salient(weights: Tensor, mask: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """Return the indices of the largest weights in each row, and which of them count.

    Args:
        weights: Attention weights, [..., K].
        mask: Keys that count, bool [..., K]; the same for all but the last two dimensions.
        fraction: Fraction of a row's keys in the mask that are salient, rounded up.

    Returns:
        Indices [..., n] in descending order of weight, the earlier first of equal weights, with n
        the largest number of salient keys of a row; and a mask of those that are salient.
    """
    visible = mask.sum(dim=-1)
    counts = visible.cpu().apply_(lambda keys: num_salient(fraction, keys)).to(visible.device)
    order = weights.masked_fill(~mask, -torch.inf).sort(dim=-1, descending=True, stable=True)
    most = int(counts.max())
    valid = torch.arange(most, device=mask.device) < counts.unsqueeze(-1)
    return order.indices[..., :most], valid
