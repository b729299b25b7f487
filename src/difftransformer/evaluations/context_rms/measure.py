"""Context RMS by position (DIFF V2 post): magnitude of head outputs before W_O.

Three values of a head at a position n; before and after are root mean squares over the width e:

    before   head output before a per-head RMSNorm
    after    input of W_O, after the per-head RMSNorm of a variant that has one
    weights  |a|, the Euclidean norm of the attention weights over positions 1 to n

`before` and `after` are divided by the RMS of the layer's values at 1 to n. The post derives its
bounds from `weights`: with uncorrelated values of RMS 1 the expected square of the context is the
sum of the squared weights.

Shapes: B = windows, T = positions, H = output heads, G = value heads, L = layers, e = width.
"""

from collections import defaultdict

import torch
from torch import Tensor

from difftransformer.convert.attention_hooks import attention_layers, capture_lambdas, lambda_means
from difftransformer.evaluation.attention_capture import (
    AFTER,
    BEFORE,
    capture_head_outputs,
    iter_attention_blocks,
)
from difftransformer.evaluation.context import (
    EvalContext,
    EvalResult,
    Metrics,
    per_item_scores,
    validation_inputs,
)
from difftransformer.evaluations.context_rms.settings import (
    KINDS,
    QUANTILES,
    Suite,
    position_metric,
)
from difftransformer.models.cache import PrefixCache
from difftransformer.models.config import lambda_metric

_MAGNIFICATION = "magnification"


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Return mean magnitudes of head outputs by position, and the range of the middle 90%.

    Returns:
        {kind}_p{n} (mean over windows, layers and heads), {kind}_p{n}_low and {kind}_p{n}_high for
        each position n and each kind of magnitude: before (RMS of the head output), after (RMS of
        the input of the output projection) and weights (norm of the attention weights).

        magnification: mean factor by which a per-head RMSNorm alone, without the layer's constant
        factor after it, changes head outputs at the last position; magnification_max: the largest.
        lambda_l{l}: mean factor of the subtracted map over the heads of layer l (and over tokens,
        if it depends on them), None for a layer without one. tokens: number of tokens read. Means
        by kind and magnification have per-item scores by window.

    Raises:
        DataError: The validation split is missing or too short.
    """
    indices = torch.tensor(suite.metric_positions) - 1
    batches: dict[str, list[Tensor]] = defaultdict(list)
    model = context.scorer.model
    tokens = 0
    with capture_lambdas(model) as lambdas:
        for batch in validation_inputs(suite, context):
            for kind, values in _magnitudes(context, batch, indices).items():
                batches[kind].append(values)
            tokens += batch.numel()
    magnitudes = {kind: torch.cat(values) for kind, values in batches.items()}
    names = map(lambda_metric, range(model.config.num_layers))
    learned: Metrics = dict.fromkeys(names) | lambda_means(lambdas)
    measured = _measured(suite, magnitudes, windows=tokens // suite.seq_len)
    return measured._replace(metrics={**measured.metrics, **learned, "tokens": tokens})


def _magnitudes(context: EvalContext, tokens: Tensor, indices: Tensor) -> dict[str, Tensor]:
    """Return every kind, and the magnification, at some positions, [B * L * H, positions]."""
    scorer = context.scorer
    by_layer: dict[str, dict[int, Tensor]] = {kind: {} for kind in (*KINDS, _MAGNIFICATION)}

    def store(layer: int, kind: str, outputs: Tensor) -> None:
        squares = outputs.double().cpu()[:, indices].square()
        by_layer[kind][layer] = squares.mean(-1).sqrt().transpose(1, 2)

    head_scales = {  # after the norm; without a norm, both before and after have it
        layer.layer_index: 1.0 if getattr(layer, "head_norm", None) is None else layer.head_scale
        for layer in attention_layers(scorer.model)
    }
    cache = PrefixCache(tokens.shape[1])
    heads = scorer.model.config.attention.output_heads
    with capture_head_outputs(scorer.model, heads, store):
        scorer.hidden_states(tokens, cache)
    (layers,) = iter_attention_blocks(scorer, tokens, tokens.shape[1])
    for rows in layers:
        norms = rows.weights.double().cpu()[:, :, indices].norm(dim=-1)
        by_layer["weights"][rows.layer] = norms
    for layer, head_scale in head_scales.items():
        before = by_layer[BEFORE][layer].clamp_min(torch.finfo(torch.float64).tiny)
        by_layer[_MAGNIFICATION][layer] = by_layer[AFTER][layer] / before / head_scale
        unit = value_rms(cache.get(layer)[1])[:, None, indices]
        for kind in (BEFORE, AFTER):
            by_layer[kind][layer] = by_layer[kind][layer] / unit
    return {
        kind: torch.stack(list(layers.values()), dim=1).flatten(0, 2)
        for kind, layers in by_layer.items()
    }


def value_rms(values: Tensor) -> Tensor:
    """Return the RMS of a layer's values up to each position, [B, G, T, e] -> [B, T].

    At position t it is over the values at positions 1 to t, of all G value heads of width e.
    """
    squares = values.double().cpu().square().mean(dim=(1, 3))
    return (squares.cumsum(1) / torch.arange(1, squares.shape[1] + 1)).sqrt()


def _measured(suite: Suite, magnitudes: dict[str, Tensor], windows: int) -> EvalResult:
    metrics: Metrics = {}
    per_item = {}

    def add(name: str, column: Tensor) -> None:
        metrics[name] = float(column.mean())
        per_item[name] = per_item_scores("windows", column.reshape(windows, -1).mean(1).tolist())

    for kind in KINDS:
        for column, n in zip(magnitudes[kind].unbind(1), suite.metric_positions, strict=True):
            add(position_metric(kind, n), column)
            for ending, quantile in QUANTILES.items():
                value = float(torch.quantile(column, quantile))
                metrics[position_metric(kind, n, ending)] = value
    ratio = magnitudes[_MAGNIFICATION][:, -1]
    add("magnification", ratio)
    metrics["magnification_max"] = float(ratio.max())
    return EvalResult(metrics, per_item)
