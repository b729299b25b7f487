"""Agreement of the two maps of a differential head, row by row.

    rank     Spearman's correlation, equal values having the mean of their ranks
    pearson  Pearson's correlation
    js       Jensen-Shannon divergence in nats of the two rows, each divided by its sum
    cosine   1 - cosine

Shapes: K = keys; a row has values for all of them and ``seen`` says which ones count. What a row
leaves undefined, as the correlation of one whose values are all equal, is NaN.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from difftransformer.evaluations.attention_maps.settings import salient

_ROUNDING = 1e-12
"""Of logarithms."""


class Ranked(NamedTuple):
    """A map and the ranks of its weights in each row, float64 [..., K] both."""

    weights: Tensor
    ranks: Tensor


def ranked(weights: Tensor, seen: Tensor) -> Ranked:
    """Rank the weights of rows among what is seen."""
    return Ranked(weights, ranks(weights, seen))


def agreement(first: Ranked, second: Ranked, seen: Tensor) -> dict[str, Tensor]:
    """Every kind, with ``seen`` bool [..., K] -> [...]."""
    return {
        "rank": correlation(first.ranks, second.ranks, seen),
        "pearson": correlation(first.weights, second.weights, seen),
        "js": divergence(first.weights, second.weights, seen),
        "cosine": cosine_distance(first.weights, second.weights, seen),
    }


def ranks(values: Tensor, seen: Tensor) -> Tensor:
    """Rank of each value among those seen, from 1, equal ones having their mean."""
    ordered, order = values.masked_fill(~seen, torch.inf).sort(dim=-1)
    last_place = values.shape[-1] - 1
    place = torch.arange(last_place + 1, device=values.device).expand_as(order)
    changes = ordered[..., 1:] != ordered[..., :-1]
    edge = torch.ones_like(seen[..., :1]).expand(*changes.shape[:-1], 1)
    starts, ends = torch.cat((edge, changes), dim=-1), torch.cat((changes, edge), dim=-1)
    first = place.where(starts, 0).cummax(dim=-1).values
    last = place.where(ends, last_place).flip(-1).cummin(dim=-1).values.flip(-1)
    found = torch.empty_like(values).scatter_(-1, order, (first + last).to(values.dtype) / 2 + 1)
    return found.masked_fill(values.isnan(), torch.nan)


def correlation(x: Tensor, y: Tensor, seen: Tensor) -> Tensor:
    """Pearson's correlation."""
    number = seen.sum(dim=-1, keepdim=True)
    sides, varies = [], []
    for values in (x, y):
        mean = values.where(seen, 0).sum(dim=-1, keepdim=True) / number
        sides.append((values - mean).where(seen, 0))
        lowest = values.masked_fill(~seen, torch.inf).amin(dim=-1)
        varies.append(values.masked_fill(~seen, -torch.inf).amax(dim=-1) > lowest)
    a, b = sides
    found = (a * b).sum(-1) / (a.square().sum(-1).sqrt() * b.square().sum(-1).sqrt())
    return found.where(varies[0] & varies[1], torch.nan)


def divergence(x: Tensor, y: Tensor, seen: Tensor) -> Tensor:
    """Jensen-Shannon divergence in nats: entropy of the mean less the mean of entropies."""
    p, q = (shares(values, seen) for values in (x, y))
    both = entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2
    return both.clamp_min(0)  # NaN stays


def cosine_distance(x: Tensor, y: Tensor, seen: Tensor) -> Tensor:
    """1 - cosine; undefined of a row of zeros."""
    x, y = x.where(seen, 0), y.where(seen, 0)
    lengths = x.square().sum(-1).sqrt() * y.square().sum(-1).sqrt()
    return (1 - (x * y).sum(-1) / lengths).where(lengths > 0, torch.nan)


def shares(values: Tensor, seen: Tensor) -> Tensor:
    """Sizes of what is seen over their sum; NaN in a row of zeros."""
    sizes = values.abs().where(seen, 0)
    return sizes / sizes.sum(dim=-1, keepdim=True)


def entropy(distribution: Tensor) -> Tensor:
    """Entropy in nats, [..., K] -> [...]."""
    nats: Tensor = torch.special.entr(distribution)
    return nats.sum(-1)


def alike_everywhere(first: Tensor, second: Tensor, seen: Tensor, noise: Tensor) -> Tensor:
    """A second map, drawn, whose likeness to the first is the same for all tokens (ours).

    In each row the logarithms of its weights lie about the line by which those of ``second`` go
    with those of ``first``, as far from it as those of ``second``, but in another order: residuals
    are permuted (Freedman and Lane 1983). Where salient tokens agree less because they are few and
    their weights a narrow range, they do so in these maps, too.

    Args:
        first: The map that is kept, float64 [..., K].
        second: The map that is subtracted, float64 [..., K].
        seen: Which tokens count, bool [..., K]; may lack leading dimensions.
        noise: Numbers without order, [..., K].

    Returns:
        float64 [..., K], 0 of what is not seen; NaN in a row where a weight is 0, or all of
        ``first`` are equal.
    """
    number = seen.sum(dim=-1, keepdim=True)

    def centered(weights: Tensor) -> Tensor:
        logs = weights.log().where(seen, 0)
        return (logs - logs.sum(dim=-1, keepdim=True) / number).where(seen, 0)

    x, y = centered(first), centered(second)
    x = x.masked_fill((x.abs() < _ROUNDING).all(dim=-1, keepdim=True), torch.nan)
    line = (x * y).sum(-1, keepdim=True) / x.square().sum(-1, keepdim=True) * x
    # Both have the places that are seen before all others.
    places = (~seen).byte().argsort(dim=-1, stable=True).expand_as(x)
    others = noise.masked_fill(~seen, torch.iinfo(noise.dtype).max).argsort(dim=-1)
    residuals = torch.empty_like(x).scatter_(-1, places, (y - line).gather(-1, others))
    drawn = (line + residuals).masked_fill(~seen, -torch.inf)
    return drawn.softmax(dim=-1)


def without_order(places: Tensor) -> Tensor:
    """Numbers that seem drawn at random, int64, one for each int64, always the same for it.

    So they are alike on each device, and however rows are put together. By SplitMix64 (Steele, Lea
    and Flood 2014).
    """
    bits = places * -0x61C8864680B583EB
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1)):
        bits = (bits ^ (bits >> shift & (1 << 64 - shift) - 1)) * factor
    return bits


def most_salient(salience: Tensor, seen: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Places of the most salient of the tokens seen, [..., n], and which of the n count.

    Of equal ones the earlier come first. ``seen`` is the same for all but the last two dimensions.
    """
    visible = seen.sum(dim=-1)
    numbers = visible.cpu().apply_(lambda one: salient(share, one)).to(visible.device)
    order = salience.masked_fill(~seen, -torch.inf).sort(dim=-1, descending=True, stable=True)
    most = int(numbers.max())
    counted = torch.arange(most, device=seen.device) < numbers.unsqueeze(-1)
    return order.indices[..., :most], counted
