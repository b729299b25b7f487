"""Attention maps (arXiv 2505.16333, sections 2.2, 2.3, B.1; figures 1, 2, 3, 5a, 14, 15 and 16).

The weights of a head are what it gives to the values, of a differential head the difference A of
its two maps A1 and A2. Only pairs of a query and a key that it sees count; rows are equal in a
mean, and so are heads, layers and windows.

Readings of what the paper leaves open:
    salient    Figure 1 says "top-5% tokens with highest attention score in each sequence", and
               there are two scores. Here: of the tokens that a query sees those with the highest
               A1, the map that is kept. Other picks bias by themselves: by the sum of both, maps
               that have nothing to do with each other correlate far below 0, by A above 0, by A1
               at 0. Any pick narrows the range of values, which brings a correlation nearer to 0.
    distance   1 - cosine of two heads' signed maps of one window, each map one vector of T (T + 1)
               / 2 weights.

A pretrained model is read where its architecture has a reader (`convert.hf_attention`). Of a layer
without attention every number is None; where a window slides, what lies behind it does not count.

Shapes: B = windows in memory, N = all, T = positions, L = layers, H = heads, b = queries of a
block, K = keys that it sees.
"""

from collections.abc import Mapping

import torch
from safetensors.torch import save_file
from torch import Tensor

from difftransformer.evaluation.attention_capture import iter_attention_blocks
from difftransformer.evaluation.context import (
    EvalContext,
    EvalResult,
    Metrics,
    per_item_scores,
    validation_inputs,
)
from difftransformer.evaluations.attention_maps.agreement import (
    agreement,
    alike_everywhere,
    entropy,
    most_salient,
    ranked,
    shares,
    without_order,
)
from difftransformer.evaluations.attention_maps.settings import (
    ALIKE,
    BY_LAYER,
    DETAILS,
    KEPT_QUERIES,
    KEPT_WINDOWS,
    PARTS,
    THRESHOLDS,
    Suite,
    metric_names,
)
from difftransformer.models.attention.maps import AttentionBlock
from difftransformer.models.config import layer_metric

_MOST_WINDOWS = 1 << 20


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Means over windows, queries, heads and layers, and by layer as ..._l{l}.

    Returns:
        rank, pearson, js and cosine, each as ..._all and ..._top: see `agreement`, from position
        ``first_query`` on; ..._alike: the same of maps whose likeness is the same for all tokens,
        see `alike_everywhere`. below_1e4 and below_1e6: share of weights of smaller size. entropy:
        of a row's absolute weights over their sum, in nats, 0 where there are none; entropy_first
        and entropy_second: of the rows of A1 and A2; entropy_maps: of both.
        negative_share: of all weights. positive_size and negative_size: mean size of the positive
        and of the negative ones. distance: between two heads of a layer; distance_all: between two
        of all heads. tokens. What takes two maps is None where heads have one, negative_size where
        no weight is negative, distance where there is one head. All but tokens are known by
        window, too.

    Raises:
        CheckpointError: the maps of a model from elsewhere cannot be read.
        DataError: the validation split is missing or too short.
    """
    first, last = suite.first_query - 1, suite.seq_len - 1
    places = torch.linspace(first, last, min(KEPT_QUERIES, last - first + 1)).round().long()
    kept, tallies, distances, tokens = [], [], [], 0
    for batch in validation_inputs(suite, context):
        before = tokens // suite.seq_len
        windows = max(0, min(len(batch), KEPT_WINDOWS - before))
        size = (windows, 2, context.scorer.model.num_layers, len(places), suite.seq_len)
        kept.append(torch.zeros(size))
        tally, heads, gram = _read(suite, context, batch, before, places.tolist(), kept[-1])
        apart = 1 - gram / (own := gram.diagonal(dim1=1, dim2=2).sqrt())[:, None] / own[..., None]
        _add_distances(tally, apart, heads)
        tallies.append({name: sums.cpu() for name, sums in tally.sums.items()})
        distances.append(apart.cpu())
        tokens += batch.numel()
    matrix = torch.cat(distances).nanmean(0)
    signed, absolute = torch.cat(kept).unbind(1)
    details = {"distance": matrix, "signed": signed, "absolute": absolute, "queries": places}
    save_file({key: one.contiguous() for key, one in details.items()}, context.details / DETAILS)
    sums = {name: torch.cat([one[name] for one in tallies], dim=2) for name in tallies[0]}
    return _measured(metric_names(context.scorer.model.num_layers), sums, tokens)


class Tally:
    """Sums of numbers and how many they are, [2, L, B] by name."""

    def __init__(self, layers: int, windows: int) -> None:
        self._size = (2, layers, windows)
        self.sums: dict[str, Tensor] = {}

    def add(self, name: str, layer: int, values: Tensor, counted: Tensor) -> None:
        """Add numbers [B, ...] of a layer, those that are counted."""
        sums = self.sums.setdefault(
            name, torch.zeros(self._size, dtype=torch.float64, device=values.device)
        )
        sums[0, layer] += values.double().where(counted, 0).flatten(1).sum(1)
        sums[1, layer] += counted.expand_as(values).flatten(1).sum(1)


def _read(
    suite: Suite,
    context: EvalContext,
    tokens: Tensor,
    before: int,
    queries: list[int],
    kept: Tensor,
) -> tuple[Tally, dict[int, int], Tensor]:
    """Sums over a batch, H by layer, and products of every two heads' maps, float64 [B, L H, L H].

    A layer that has no maps is not among them. ``before``: windows of earlier batches. ``kept`` of
    the first windows gets means over heads of some rows, signed and absolute, [W, 2, L, Q, T].
    """
    tally = Tally(context.scorer.model.num_layers, len(tokens))
    gram, heads = torch.zeros(()), dict[int, int]()
    for block in iter_attention_blocks(context.scorer, tokens, suite.block):
        flat = []
        for rows in block:
            weights = rows.weights.double()
            _add_scores(tally, rows.layer, weights, rows.seen)
            _add_pair(tally, suite, rows, before)
            _keep_rows(kept, rows, queries)
            flat.append(weights.flatten(2))
            heads[rows.layer] = weights.shape[1]
        joined = torch.cat(flat, dim=1)
        gram = gram.to(joined.device) + joined @ joined.mT
    return tally, heads, gram


def _keep_rows(kept: Tensor, rows: AttentionBlock, queries: list[int]) -> None:
    weights = rows.weights[: len(kept)].float()
    for place, query in enumerate(queries):
        if len(kept) and rows.start <= query < rows.start + weights.shape[2]:
            row = weights[:, :, query - rows.start, : query + 1]
            for kind, one in enumerate((row, row.abs())):
                kept[:, kind, rows.layer, place, : query + 1] = one.mean(1).cpu()


def _add_scores(tally: Tally, layer: int, weights: Tensor, seen: Tensor) -> None:
    sizes, negative = weights.abs(), weights < 0
    for name, threshold in THRESHOLDS.items():
        tally.add(name, layer, sizes < threshold, seen)
    tally.add("negative_share", layer, negative, seen)
    tally.add("positive_size", layer, sizes, weights > 0)
    tally.add("negative_size", layer, sizes, negative)
    _add_entropy(tally, "entropy", layer, weights, seen)


def _add_entropy(tally: Tally, name: str, layer: int, weights: Tensor, seen: Tensor) -> None:
    nats = entropy(shares(weights, seen)).masked_fill((weights == 0).all(-1), 0.0)
    tally.add(name, layer, nats, torch.ones_like(nats, dtype=torch.bool))


def _add_pair(tally: Tally, suite: Suite, rows: AttentionBlock, before: int) -> None:
    if rows.component_maps is None:
        return
    layer, seen = rows.layer, rows.seen
    first, second = (one.double() for one in rows.component_maps)
    for name, one in (("entropy_first", first), ("entropy_second", second)):
        _add_entropy(tally, name, layer, one, seen)
        _add_entropy(tally, "entropy_maps", layer, one, seen)
    late = slice(max(0, suite.first_query - 1 - rows.start), None)
    first, second, seen = first[:, :, late], second[:, :, late], seen[late]
    if not len(seen):
        return
    seen_by_all = seen.expand_as(first)
    kept, subtracted = ranked(first, seen_by_all), ranked(second, seen_by_all)
    noise = _noise(suite, rows, before)[:, :, late]
    drawn = ranked(alike_everywhere(first, second, seen, noise), seen_by_all)
    at, counted = most_salient(first, seen, suite.top_share)
    counted = counted.expand_as(at)
    top = ranked(first.gather(-1, at), counted)
    for end, other in (("", subtracted), (ALIKE, drawn)):
        salient = ranked(other.weights.gather(-1, at), counted)
        by_part = ((kept, other, seen_by_all), (top, salient, counted))
        for part, compared in zip(PARTS, by_part, strict=True):
            for kind, values in agreement(*compared).items():
                tally.add(f"{kind}_{part}{end}", layer, values, ~values.isnan())


def _noise(suite: Suite, rows: AttentionBlock, before: int) -> Tensor:
    """Numbers for the weights of some rows, the same in batches and blocks of any size."""
    sizes, device = rows.weights.shape, rows.weights.device
    window, head, query, key = (
        torch.arange(size, device=device).view(-1, *[1] * (3 - axis))
        for axis, size in enumerate(sizes)
    )
    places = rows.layer * _MOST_WINDOWS + before + window
    for counted, place in (
        (sizes[1], head),
        (suite.seq_len, rows.start + query),
        (suite.seq_len, key),
    ):
        places = places * counted + place
    return without_order(places)


def _add_distances(tally: Tally, apart: Tensor, heads: Mapping[int, int]) -> None:
    """Add those of every two heads of a layer, and of every two heads; [B, L H, L H]."""
    start = 0
    for layer, number in heads.items():
        own = slice(start, start + number)
        within = _pairs(apart[:, own, own])
        tally.add("distance", layer, within, ~within.isnan())
        start += number
    pairs = _pairs(apart)
    tally.add("distance_all", 0, pairs, ~pairs.isnan())


def _pairs(matrix: Tensor) -> Tensor:
    """What stands above the diagonal of [B, n, n], [B, n (n - 1) / 2]."""
    size = matrix.shape[-1]
    rows, columns = torch.triu_indices(size, size, offset=1, device=matrix.device)
    return matrix[:, rows, columns]


def _measured(names: list[str], sums: Mapping[str, Tensor], tokens: int) -> EvalResult:
    """Ratios of sums [2, L, N]."""
    metrics: Metrics = dict.fromkeys(names)
    per_item = {}
    for name, (total, number) in sums.items():
        metrics[name] = _ratio(total, number)
        if metrics[name] is not None:
            per_item[name] = per_item_scores(
                "windows", total.sum(0).tolist(), number.sum(0).tolist()
            )
        if name in BY_LAYER:
            for layer in range(len(total)):
                metrics[layer_metric(name, layer)] = _ratio(total[layer], number[layer])
    return EvalResult(metrics | {"tokens": tokens}, per_item)


def _ratio(total: Tensor, number: Tensor) -> float | None:
    return float(total.sum() / number.sum()) if number.sum() else None
