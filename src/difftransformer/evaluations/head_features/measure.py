"""Outputs of heads as W_O gets them (arXiv 2505.16333, figures 5b, 6, 11a, 11b, 17, 19).

    alignment   linear CKA of every two heads, see `alignment`: 1 where they say the same
    importance  mean over windows of the squared slope of a window's loss in a gate on the head's
                output (Michel et al. 2019), divided by that of the layer's most important head
    Dex         of a run that Dex adapted: cosine of O_h and lambda O_h W_D, and the ratio of their
                norms, over positions; a positive cosine is a head that is damped

Shapes: B = windows, T = positions, L = layers, H = heads, e = width, n = samples.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from difftransformer.convert.attention_hooks import (
    OutputProjection,
    find_output_projections,
    forward_pre_hooks,
    head_gate_grads,
)
from difftransformer.convert.dex_weights import DexWeights, read_dex_weights
from difftransformer.evaluation.context import EvalContext, EvalResult, Metrics, validation_windows
from difftransformer.evaluations.head_features.alignment import Alignment
from difftransformer.evaluations.head_features.settings import (
    CKA,
    DETAILS,
    IMPORTANCE,
    OVERALL,
    Suite,
)
from difftransformer.models.autograd import at_least_fp32
from difftransformer.models.config import layer_metric
from difftransformer.models.linear import linear


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Means over layers, and by layer.

    Returns:
        cka, mean over pairs of a layer's heads; cka_all, over those of all layers; importance_even,
        mean of a layer's importances, 1 where all heads matter as much; the first and the last by
        layer, as ..._l{l}; dex_cosine and dex_norm, means over the heads that Dex changed, None for
        a run without Dex; tokens. None, too, where heads do not vary or a layer has a single one.

    Raises:
        CheckpointError: heads of a model from elsewhere cannot be read.
        DataError: the validation split is missing or too short.
    """
    model = context.scorer.model
    joined = find_output_projections(model)
    layers, number = len(joined), joined[0].num_heads
    alignment, importance = Alignment(), torch.zeros(layers, number, dtype=torch.float64)
    changes = read_dex_weights(context.model, layers, number)
    dex = None if changes is None else _Changed(changes)
    tokens, windows = 0, 0
    for batch in validation_windows(suite, context):
        outputs = _outputs(context, batch[:, :-1], joined)
        flat = outputs.flatten(1, 2)  # [L, B T, H, e]
        places = torch.linspace(0, flat.shape[1] - 1, min(suite.samples, flat.shape[1])).long()
        alignment.add(flat[:, places].transpose(1, 2).flatten(0, 1))
        importance += slopes(context, batch, joined).square().sum(0)
        if dex is not None:
            dex.add(flat)
        tokens, windows = tokens + batch[:, 1:].numel(), windows + len(batch)
    matrix = alignment.matrix()
    importance = importance / importance.amax(1, keepdim=True).clamp_min(1e-300)
    details = {"cka": matrix.contiguous(), "importance": importance.contiguous()}
    found: Metrics = dict.fromkeys(OVERALL) | {"tokens": tokens}
    blocks = matrix.view(layers, number, layers, number)
    within = [_off_diagonal(blocks[layer, :, layer]) for layer in range(layers)]
    places_of, even = [one.layer for one in joined], importance.mean(1).tolist()
    for name, values in ((CKA, within), (IMPORTANCE, even)):
        by_layer = dict(zip(places_of, values, strict=True))
        for layer in range(context.scorer.model.num_layers):
            found[layer_metric(name, layer)] = by_layer.get(layer)
    found |= {CKA: _mean(within), "cka_all": _off_diagonal(matrix)}
    found[IMPORTANCE] = sum(even) / len(even)
    if dex is not None:
        details |= dex.details()
        found |= dex.metrics()
    save_file(details, context.details / DETAILS)
    return EvalResult(found, {})


def slopes(context: EvalContext, windows: Tensor, joined: Sequence[OutputProjection]) -> Tensor:
    """Slope of each window's mean loss in a gate on each head, [B, T + 1] -> [B, L, H]."""
    model, tokens = context.scorer.model, windows.to(context.device)

    def losses() -> Tensor:
        hidden = model.hidden_states(tokens[:, :-1])
        logits = at_least_fp32(linear(hidden, model.output_weight))
        return F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none").mean(1)

    projections = [one.module for one in joined]
    return head_gate_grads(projections, len(windows), joined[0].num_heads, losses)


def _outputs(context: EvalContext, tokens: Tensor, joined: Sequence[OutputProjection]) -> Tensor:
    """What W_O gets in every layer, [L, B, T, H, e] on the CPU."""
    found: list[Tensor] = []

    def hook(heads: int) -> Callable[[nn.Module, Any], None]:
        def look(module: nn.Module, inputs: Any) -> None:
            outputs: Tensor = inputs[0]
            found.append(outputs.reshape(*outputs.shape[:2], heads, -1).float().cpu())

        return look

    with forward_pre_hooks([(one.module, hook(one.num_heads)) for one in joined]):
        context.scorer.hidden_states(tokens)
    return torch.stack(found)


class _Changed:
    """Sums over positions of what Dex makes of the heads that it changed."""

    def __init__(self, changes: DexWeights) -> None:
        self._changes = changes
        self._cosine, self._norm = (
            torch.zeros(changes.selected.shape, dtype=torch.float64) for _ in range(2)
        )
        self._positions = 0

    def add(self, outputs: Tensor) -> None:
        """Add positions, [L, N, H, e]."""
        own = outputs.double()
        change = torch.einsum("lnhe,lhef->lnhf", own, self._changes.matrices)
        self._cosine += F.cosine_similarity(own, change, dim=-1).sum(1)
        self._norm += (change.norm(dim=-1) / own.norm(dim=-1).clamp_min(1e-300)).sum(1)
        self._positions += outputs.shape[1]

    def details(self) -> dict[str, Tensor]:
        """Means over positions; NaN for the heads that were left alone."""
        return {
            name: (sums / self._positions).where(self._changes.selected, math.nan)
            for name, sums in (("cosine", self._cosine), ("norm", self._norm))
        }

    def metrics(self) -> Metrics:
        """Means over the heads that were changed."""
        return {f"dex_{name}": float(one.nanmean()) for name, one in self.details().items()}


def _off_diagonal(matrix: Tensor) -> float | None:
    """Mean without the diagonal."""
    size = len(matrix)
    if size < 2:
        return None
    found = float((matrix.sum() - matrix.diagonal().sum()) / (size * (size - 1)))
    return found if math.isfinite(found) else None


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
