"""Attention maps (arXiv 2505.16333, sections 2.2, 2.3, B.1; figures 1, 2, 3, 5a, 14, 15 and 16).

The attention weights of a differential head are the difference A = A1 - A2 of its two maps. Only
keys that the causal mask allows count. Rows, heads, layers and windows have equal weight in a mean.

Choices that the paper leaves open:
    salient    Figure 1 says "top-5% tokens with highest attention score in each sequence", and
               there are two scores. Here: the tokens with the highest A1, the positive map, of
               those that a query attends to. Other choices are biased: unrelated maps correlate far
               below 0 on the tokens with the highest A1 + A2, above 0 on those with the highest A,
               at 0 with A1. Any choice narrows the range of values and so shrinks correlations.
    distance   1 - cosine similarity of two heads' signed maps of one window, each map one vector of
               T (T + 1) / 2 weights.

A pretrained model is measured where its architecture has a reader (`convert.hf_attention`). A layer
without attention has None for every metric; keys outside a sliding window do not count.

Shapes: B = windows in memory, N = all windows, T = positions, L = layers, H = heads, b = queries of
a block, K = keys that they attend to.
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
from difftransformer.evaluations.attention_maps.map_similarity import (
    entropy,
    most_salient,
    normalize,
    rank_map,
    similarity,
    splitmix64,
    surrogate_map,
)
from difftransformer.evaluations.attention_maps.settings import (
    BY_LAYER,
    DETAILS,
    SAVED_QUERIES,
    SAVED_WINDOWS,
    SURROGATE,
    THRESHOLDS,
    TOKENS,
    Suite,
    metric_names,
)
from difftransformer.models.attention.maps import AttentionBlock
from difftransformer.models.config import layer_metric

_MAX_WINDOWS = 1 << 20


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Return metrics of a model's attention maps on windows of the validation split.

    Returns:
        Means over windows, queries, heads and layers; most also by layer, as ..._l{l}.

        - {measure}_all, {measure}_top: similarity of the two maps of a head over all tokens and
          over the most salient ones, from position ``first_query`` on, for the measures spearman,
          pearson, js and cosine of `similarity`; ..._surrogate: similarity of the first map and a
          surrogate of the second, see `surrogate_map`.
        - below_1e4, below_1e6: fraction of weights of magnitude below 1e-4, 1e-6.
        - entropy: entropy of a row's absolute weights divided by their sum, in nats, 0 for a row
          without weights; entropy_first, entropy_second, entropy_maps: entropy of the first
          map, of the second, and of both.
        - negative_fraction: fraction of negative weights; positive_magnitude, negative_magnitude:
          mean magnitude of positive and of negative weights.
        - distance, distance_all: cosine distance between the maps of two heads of a layer, and of
          any two heads.
        - tokens: number of tokens read.

        Metrics of two maps are None for heads with one, negative_magnitude without negative
        weights, distance with a single head. All but tokens have per-item scores by window.

    Raises:
        CheckpointError: The maps of a pretrained model cannot be read.
        DataError: The validation split is missing or too short.
    """
    first, last = suite.first_query - 1, suite.seq_len - 1
    queries = torch.linspace(first, last, min(SAVED_QUERIES, last - first + 1)).round().long()
    saved, tallies, distances, tokens = [], [], [], 0
    for batch in validation_inputs(suite, context):
        before = tokens // suite.seq_len
        windows = max(0, min(len(batch), SAVED_WINDOWS - before))
        size = (windows, 2, context.scorer.model.num_layers, len(queries), suite.seq_len)
        saved.append(torch.zeros(size))
        tally, heads, gram = _tally_batch(
            suite, context, batch, before, queries.tolist(), saved[-1]
        )
        norms = gram.diagonal(dim1=1, dim2=2).sqrt()
        distance = 1 - gram / norms[:, None] / norms[..., None]
        _add_distances(tally, distance, heads)
        tallies.append({name: sums.cpu() for name, sums in tally.sums.items()})
        distances.append(distance.cpu())
        tokens += batch.numel()
    matrix = torch.cat(distances).nanmean(0)
    signed, absolute = torch.cat(saved).unbind(1)
    details = {"distance": matrix, "signed": signed, "absolute": absolute, "queries": queries}
    contiguous = {key: tensor.contiguous() for key, tensor in details.items()}
    save_file(contiguous, context.details / DETAILS)
    sums = {name: torch.cat([part[name] for part in tallies], dim=2) for name in tallies[0]}
    return _measured(metric_names(context.scorer.model.num_layers), sums, tokens)


class Tally:
    """Running sums of values and of their counts, by metric name.

    Each entry of ``sums`` is [2, L, B], sums then counts, for L layers and B windows.
    """

    def __init__(self, layers: int, windows: int) -> None:
        self._size = (2, layers, windows)
        self.sums: dict[str, Tensor] = {}

    def add(self, name: str, layer: int, values: Tensor, mask: Tensor) -> None:
        """Add a layer's values [B, ...] where the mask is True to the sums of a metric."""
        sums = self.sums.setdefault(
            name, torch.zeros(self._size, dtype=torch.float64, device=values.device)
        )
        sums[0, layer] += values.double().where(mask, 0).flatten(1).sum(1)
        sums[1, layer] += mask.expand_as(values).flatten(1).sum(1)


def _tally_batch(
    suite: Suite,
    context: EvalContext,
    tokens: Tensor,
    before: int,
    queries: list[int],
    saved: Tensor,
) -> tuple[Tally, dict[int, int], Tensor]:
    """Return sums over a batch, heads by layer, and the Gram matrix of maps, [B, L H, L H] float64.

    Layers without maps are left out. ``before`` is the number of windows of earlier batches;
    ``saved`` [W, 2, L, Q, T] gets the rows at ``queries`` of the first windows, mean over heads,
    signed and absolute.
    """
    tally = Tally(context.scorer.model.num_layers, len(tokens))
    gram, heads = torch.zeros(()), dict[int, int]()
    for block in iter_attention_blocks(context.scorer, tokens, suite.block):
        flat = []
        for rows in block:
            weights = rows.weights.double()
            _add_weights(tally, rows.layer, weights, rows.mask)
            _add_similarity(tally, suite, rows, before)
            _save_rows(saved, rows, queries)
            flat.append(weights.flatten(2))
            heads[rows.layer] = weights.shape[1]
        joined = torch.cat(flat, dim=1)
        gram = gram.to(joined.device) + joined @ joined.mT
    return tally, heads, gram


def _save_rows(saved: Tensor, rows: AttentionBlock, queries: list[int]) -> None:
    weights = rows.weights[: len(saved)].float()
    for index, query in enumerate(queries):
        if len(saved) and rows.start <= query < rows.start + weights.shape[2]:
            row = weights[:, :, query - rows.start, : query + 1]
            for form, values in enumerate((row, row.abs())):
                saved[:, form, rows.layer, index, : query + 1] = values.mean(1).cpu()


def _add_weights(tally: Tally, layer: int, weights: Tensor, mask: Tensor) -> None:
    magnitudes, negative = weights.abs(), weights < 0
    for name, threshold in THRESHOLDS.items():
        tally.add(name, layer, magnitudes < threshold, mask)
    tally.add("negative_fraction", layer, negative, mask)
    tally.add("positive_magnitude", layer, magnitudes, weights > 0)
    tally.add("negative_magnitude", layer, magnitudes, negative)
    _add_entropy(tally, "entropy", layer, weights, mask)


def _add_entropy(tally: Tally, name: str, layer: int, weights: Tensor, mask: Tensor) -> None:
    nats = entropy(normalize(weights, mask)).masked_fill((weights == 0).all(-1), 0.0)
    tally.add(name, layer, nats, torch.ones_like(nats, dtype=torch.bool))


def _add_similarity(tally: Tally, suite: Suite, rows: AttentionBlock, before: int) -> None:
    """Add the entropy of the two maps and their similarity, and that of surrogate maps."""
    if rows.component_maps is None:
        return
    layer, mask = rows.layer, rows.mask
    first, second = (component.double() for component in rows.component_maps)
    for name, component in (("entropy_first", first), ("entropy_second", second)):
        _add_entropy(tally, name, layer, component, mask)
        _add_entropy(tally, "entropy_maps", layer, component, mask)
    late = slice(max(0, suite.first_query - 1 - rows.start), None)
    first, second, mask = first[:, :, late], second[:, :, late], mask[late]
    if not len(mask):
        return
    full_mask = mask.expand_as(first)
    positive, subtracted = rank_map(first, full_mask), rank_map(second, full_mask)
    noise = _noise(suite, rows, before)[:, :, late]
    surrogate = rank_map(surrogate_map(first, second, mask, noise), full_mask)
    indices, valid = most_salient(first, mask, suite.top_fraction)
    valid = valid.expand_as(indices)
    positive_top = rank_map(first.gather(-1, indices), valid)
    for ending, other in (("", subtracted), (SURROGATE, surrogate)):
        other_top = rank_map(other.weights.gather(-1, indices), valid)
        pairs = ((positive, other, full_mask), (positive_top, other_top, valid))
        for tokens, pair in zip(TOKENS, pairs, strict=True):
            for kind, values in similarity(*pair).items():
                tally.add(f"{kind}_{tokens}{ending}", layer, values, ~values.isnan())


def _noise(suite: Suite, rows: AttentionBlock, before: int) -> Tensor:
    """Return a pseudorandom integer per weight, the same for batches and blocks of any size."""
    sizes, device = rows.weights.shape, rows.weights.device
    window, head, query, key = (
        torch.arange(size, device=device).view(-1, *[1] * (3 - axis))
        for axis, size in enumerate(sizes)
    )
    counters = rows.layer * _MAX_WINDOWS + before + window
    for size, index in (
        (sizes[1], head),
        (suite.seq_len, rows.start + query),
        (suite.seq_len, key),
    ):
        counters = counters * size + index
    return splitmix64(counters)


def _add_distances(tally: Tally, distance: Tensor, heads: Mapping[int, int]) -> None:
    """Add the distances [B, L H, L H] of every two heads of a layer, and of every two heads."""
    start = 0
    for layer, count in heads.items():
        block = slice(start, start + count)
        within = _upper_triangle(distance[:, block, block])
        tally.add("distance", layer, within, ~within.isnan())
        start += count
    pairs = _upper_triangle(distance)
    tally.add("distance_all", 0, pairs, ~pairs.isnan())


def _upper_triangle(matrix: Tensor) -> Tensor:
    """Return the entries above the diagonal, [B, n, n] -> [B, n (n - 1) / 2]."""
    size = matrix.shape[-1]
    rows, columns = torch.triu_indices(size, size, offset=1, device=matrix.device)
    return matrix[:, rows, columns]


def _measured(names: list[str], sums: Mapping[str, Tensor], tokens: int) -> EvalResult:
    """Return metrics from sums and counts, [2, L, N] by name."""
    metrics: Metrics = dict.fromkeys(names)
    by_window = {}
    for name, (total, count) in sums.items():
        metrics[name] = _ratio(total, count)
        if metrics[name] is not None:
            by_window[name] = per_item_scores(
                "windows", total.sum(0).tolist(), count.sum(0).tolist()
            )
        if name in BY_LAYER:
            for layer in range(len(total)):
                metrics[layer_metric(name, layer)] = _ratio(total[layer], count[layer])
    return EvalResult(metrics | {"tokens": tokens}, by_window)


def _ratio(total: Tensor, count: Tensor) -> float | None:
    return float(total.sum() / count.sum()) if count.sum() else None
