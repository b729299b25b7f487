"""Context RMS by position (DIFF V2 post): how large the heads' outputs are before W_O.

Three readings of one head at one position n, a root mean square over the width e each:

    before   what the heads put out, before a headwise norm
    after    what W_O gets, behind the norm of a variant that has one
    weights  |a|, the Euclidean norm of the head's weights over the positions 1 to n

`before` and `after` are divided by the RMS of the layer's values at 1 to n. `weights` is what the
post derives its bounds from: with uncorrelated values of RMS 1 the expected square of the context
is the sum of the squared weights.

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
from difftransformer.evaluations.context_rms.settings import KINDS, QUANTILES, Suite, place_metric
from difftransformer.models.cache import PrefixCache
from difftransformer.models.config import lambda_metric

_MAGNIFIED = "magnified"


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Mean over windows, layers and heads, and the range of the middle 90% of them.

    Returns:
        {kind}_p{n}, {kind}_p{n}_low and _high for each kind of KINDS and each position n;
        magnification, by how much a headwise norm alone, without the layer's factor behind it,
        changes what heads put out at the last position, on average, and magnification_top, the
        most; lambda_l{l}, the factor of the maps that a layer subtracts, mean over its heads and
        where it depends on the token over all of them, None where it subtracts none; tokens. Means
        of the sizes, and magnification, are known by window, too.

    Raises:
        DataError: the validation split is missing or too short.
    """
    at = torch.tensor(suite.places) - 1
    found: dict[str, list[Tensor]] = defaultdict(list)
    model = context.scorer.model
    tokens = 0
    with capture_lambdas(model) as lambdas:
        for batch in validation_inputs(suite, context):
            for kind, part in _sizes(context, batch, at).items():
                found[kind].append(part)
            tokens += batch.numel()
    sizes = {kind: torch.cat(parts) for kind, parts in found.items()}
    names = map(lambda_metric, range(model.config.num_layers))
    learned: Metrics = dict.fromkeys(names) | lambda_means(lambdas)
    measured = _measured(suite, sizes, windows=tokens // suite.seq_len)
    return measured._replace(metrics={**measured.metrics, **learned, "tokens": tokens})


def _sizes(context: EvalContext, tokens: Tensor, at: Tensor) -> dict[str, Tensor]:
    """Every kind, and what a norm does, at the positions ``at``, [B * L * H, places]."""
    scorer = context.scorer
    found: dict[str, dict[int, Tensor]] = {kind: {} for kind in (*KINDS, _MAGNIFIED)}

    def heads(layer: int, kind: str, outputs: Tensor) -> None:
        squares = outputs.double().cpu()[:, at].square()
        found[kind][layer] = squares.mean(-1).sqrt().transpose(1, 2)

    head_scales = {  # behind a norm; without one both readings have it
        layer.layer_index: 1.0 if getattr(layer, "head_norm", None) is None else layer.head_scale
        for layer in attention_layers(scorer.model)
    }
    cache = PrefixCache(tokens.shape[1])
    number = scorer.model.config.attention.output_heads
    with capture_head_outputs(scorer.model, number, heads):
        scorer.hidden_states(tokens, cache)
    (layers,) = iter_attention_blocks(scorer, tokens, tokens.shape[1])
    for rows in layers:
        found["weights"][rows.layer] = rows.weights.double().cpu()[:, :, at].norm(dim=-1)
    for layer, head_scale in head_scales.items():
        before = found[BEFORE][layer].clamp_min(torch.finfo(torch.float64).tiny)
        found[_MAGNIFIED][layer] = found[AFTER][layer] / before / head_scale
        unit = value_rms(cache.get(layer)[1])[:, None, at]
        for kind in (BEFORE, AFTER):
            found[kind][layer] = found[kind][layer] / unit
    return {
        kind: torch.stack(list(layers.values()), dim=1).flatten(0, 2)
        for kind, layers in found.items()
    }


def value_rms(values: Tensor) -> Tensor:
    """RMS of all values of a layer [B, G, T, e] at each position and those before it, [B, T]."""
    squares = values.double().cpu().square().mean(dim=(1, 3))
    return (squares.cumsum(1) / torch.arange(1, squares.shape[1] + 1)).sqrt()


def _measured(suite: Suite, sizes: dict[str, Tensor], windows: int) -> EvalResult:
    metrics: Metrics = {}
    per_item = {}

    def add(name: str, column: Tensor) -> None:
        metrics[name] = float(column.mean())
        per_item[name] = per_item_scores("windows", column.reshape(windows, -1).mean(1).tolist())

    for kind in KINDS:
        for column, place in zip(sizes[kind].unbind(1), suite.places, strict=True):
            add(place_metric(kind, place), column)
            for ending, quantile in QUANTILES.items():
                value = float(torch.quantile(column, quantile))
                metrics[place_metric(kind, place, ending)] = value
    ratio = sizes[_MAGNIFIED][:, -1]
    add("magnification", ratio)
    metrics["magnification_top"] = float(ratio.max())
    return EvalResult(metrics, per_item)
