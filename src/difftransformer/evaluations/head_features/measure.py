"""Head outputs, the inputs of W_O (arXiv 2505.16333, figures 5b, 6, 11a, 11b, 17, 19).

    CKA         of every two heads, see `alignment`: 1 for equal outputs up to rotation and scale
    importance  mean over windows of the squared gradient of the window's loss by a gate on the head
                output (Michel et al. 2019), divided by that of the layer's most important head
    Dex         of a run adapted by Dex: cosine of O_h and lambda O_h W_D, and the ratio of their
                norms, over positions; Dex damps a head with a positive cosine

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
    """Return metrics of a model's head outputs, as means over layers and by layer (..._l{l}).

    Returns:
        cka: mean centered kernel alignment of pairs of a layer's heads; cka_all: of all pairs;
        importance_evenness: mean importance of a layer's heads, 1 if all are equally important;
        dex_cosine, dex_norm: means over the heads that Dex changed, None without Dex; tokens. Only
        cka and importance_evenness exist by layer. CKA is None for constant outputs or one head.

    Raises:
        CheckpointError: The heads of a pretrained model cannot be read.
        DataError: The validation split is missing or too short.
    """
    model = context.scorer.model
    projections = find_output_projections(model)
    layers, heads = len(projections), projections[0].num_heads
    alignment, importance = Alignment(), torch.zeros(layers, heads, dtype=torch.float64)
    dex_weights = read_dex_weights(context.model, layers, heads)
    dex = None if dex_weights is None else _DexChange(dex_weights)
    tokens = 0
    for batch in validation_windows(suite, context):
        outputs = _head_outputs(context, batch[:, :-1], projections)
        flat = outputs.flatten(1, 2)  # [L, B T, H, e]
        samples = torch.linspace(0, flat.shape[1] - 1, min(suite.samples, flat.shape[1])).long()
        alignment.add(flat[:, samples].transpose(1, 2).flatten(0, 1))
        importance += gate_grads(context, batch, projections).square().sum(0)
        if dex is not None:
            dex.add(flat)
        tokens += batch[:, 1:].numel()
    cka = alignment.matrix()
    importance = importance / importance.amax(1, keepdim=True).clamp_min(1e-300)
    details = {"cka": cka.contiguous(), "importance": importance.contiguous()}
    metrics: Metrics = dict.fromkeys(OVERALL) | {"tokens": tokens}
    blocks = cka.view(layers, heads, layers, heads)
    within = [_off_diagonal_mean(blocks[layer, :, layer]) for layer in range(layers)]
    evenness = importance.mean(1).tolist()
    for name, values in ((CKA, within), (IMPORTANCE, evenness)):
        metrics |= {layer_metric(name, layer): None for layer in range(model.num_layers)}
        for projection, value in zip(projections, values, strict=True):
            metrics[layer_metric(name, projection.layer)] = value
    metrics |= {CKA: _mean(within), "cka_all": _off_diagonal_mean(cka)}
    metrics[IMPORTANCE] = sum(evenness) / len(evenness)
    if dex is not None:
        details |= dex.details()
        metrics |= dex.metrics()
    save_file(details, context.details / DETAILS)
    return EvalResult(metrics, {})


def gate_grads(
    context: EvalContext, windows: Tensor, projections: Sequence[OutputProjection]
) -> Tensor:
    """Return the gradient of each window's loss by a gate on each head's output.

    ``windows`` is [B, T + 1]: B windows of T targets. The result is [B, L, H] for L layers of H
    heads.
    """
    model, tokens = context.scorer.model, windows.to(context.device)

    def losses() -> Tensor:
        hidden = model.hidden_states(tokens[:, :-1])
        logits = at_least_fp32(linear(hidden, model.output_weight))
        return F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none").mean(1)

    modules = [projection.module for projection in projections]
    return head_gate_grads(modules, len(windows), projections[0].num_heads, losses)


def _head_outputs(
    context: EvalContext, tokens: Tensor, projections: Sequence[OutputProjection]
) -> Tensor:
    """Return the inputs of W_O in every layer, [L, B, T, H, e] on the CPU."""
    layers: list[Tensor] = []

    def make_hook(heads: int) -> Callable[[nn.Module, Any], None]:
        def hook(module: nn.Module, inputs: Any) -> None:
            outputs: Tensor = inputs[0]
            layers.append(outputs.reshape(*outputs.shape[:2], heads, -1).float().cpu())

        return hook

    with forward_pre_hooks([(layer.module, make_hook(layer.num_heads)) for layer in projections]):
        context.scorer.hidden_states(tokens)
    return torch.stack(layers)


class _DexChange:
    """Sums over positions of the cosine and relative norm of Dex's change of each head."""

    def __init__(self, weights: DexWeights) -> None:
        self._weights = weights
        self._cosine, self._norm = (
            torch.zeros(weights.selected.shape, dtype=torch.float64) for _ in range(2)
        )
        self._positions = 0

    def add(self, outputs: Tensor) -> None:
        """Add positions, [L, N, H, e]."""
        outputs = outputs.double()
        change = torch.einsum("lnhe,lhef->lnhf", outputs, self._weights.matrices)
        self._cosine += F.cosine_similarity(outputs, change, dim=-1).sum(1)
        self._norm += (change.norm(dim=-1) / outputs.norm(dim=-1).clamp_min(1e-300)).sum(1)
        self._positions += outputs.shape[1]

    def details(self) -> dict[str, Tensor]:
        """Return the means over positions; NaN for unchanged heads."""
        return {
            name: (sums / self._positions).where(self._weights.selected, math.nan)
            for name, sums in (("cosine", self._cosine), ("norm", self._norm))
        }

    def metrics(self) -> Metrics:
        """Return the means over changed heads."""
        return {f"dex_{name}": float(values.nanmean()) for name, values in self.details().items()}


def _off_diagonal_mean(matrix: Tensor) -> float | None:
    size = len(matrix)
    if size < 2:
        return None
    mean = float((matrix.sum() - matrix.diagonal().sum()) / (size * (size - 1)))
    return mean if math.isfinite(mean) else None


def _mean(values: list[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if len(defined) == len(values) else None
