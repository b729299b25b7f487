"""Outputs of heads as W_O gets them (arXiv 2505.16333, figures 5b, 6, 11a, 11b, 17, 19).

    alignment   linear CKA of every two heads, see `alignment`: 1 where they say the same
    importance  mean over windows of the squared slope of a window's loss in a gate on the head's
                output (Michel et al. 2019), divided by that of the layer's most important head
    Dex         of a run that Dex adapted: cosine of O_h and lambda O_h W_D, and the ratio of their
                norms, over positions; a positive cosine is a head that is damped

Shapes: B = windows, T = positions, L = layers, H = heads, e = width, n = samples.
"""

import math

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from difftransformer.config.model import lambda_metric
from difftransformer.evaluation.subject import Measured, Metrics, Subject, validation_windows
from difftransformer.evaluation.watching import AFTER, watched_heads
from difftransformer.measurements.head_features.alignment import Alignment
from difftransformer.measurements.head_features.settings import (
    CKA,
    DETAILS,
    IMPORTANCE,
    OVERALL,
    Suite,
)
from difftransformer.models.checkpoint import ADAPTER
from difftransformer.models.watching import attention_layers, gate_slopes
from difftransformer.provenance.result import TRAINING, read_result


def measure(suite: Suite, subject: Subject) -> Measured:
    """Means over layers, and by layer.

    Returns:
        cka, mean over pairs of a layer's heads; cka_all, over those of all layers; importance_even,
        mean of a layer's importances, 1 where all heads matter as much; the first and the last by
        layer, as ..._l{l}; dex_cosine and dex_norm, means over the heads that Dex changed, None for
        a run without Dex; tokens. None, too, where heads do not vary or a layer has a single one.

    Raises:
        ConfigError: windows longer than the model's context.
        DataError: the validation split is missing or too short.
    """
    model = subject.scorer.model
    number = int(model.config.attention["num_heads"])
    layers = len(attention_layers(model))
    alignment, importance = Alignment(), torch.zeros(layers, number, dtype=torch.float64)
    dex, tokens, windows = _Dex.of(subject, number), 0, 0
    for batch in validation_windows(suite, subject):
        outputs = _outputs(subject, batch[:, :-1], number)
        flat = outputs.flatten(1, 2)  # [L, B T, H, e]
        places = torch.linspace(0, flat.shape[1] - 1, min(suite.samples, flat.shape[1])).long()
        alignment.add(flat[:, places].transpose(1, 2).flatten(0, 1))
        importance += slopes(subject, batch, number).square().sum(0)
        if dex is not None:
            dex.add(flat)
        tokens, windows = tokens + batch[:, 1:].numel(), windows + len(batch)
    matrix = alignment.matrix()
    importance = importance / importance.amax(1, keepdim=True).clamp_min(1e-300)
    details = {"cka": matrix.contiguous(), "importance": importance.contiguous()}
    found: Metrics = dict.fromkeys(OVERALL) | {"tokens": tokens}
    blocks = matrix.view(layers, number, layers, number)
    within = [_off_diagonal(blocks[layer, :, layer]) for layer in range(layers)]
    found |= {f"{CKA}_l{layer}": value for layer, value in enumerate(within)}
    found |= {CKA: _mean(within), "cka_all": _off_diagonal(matrix)}
    even = importance.mean(1).tolist()
    found |= {f"{IMPORTANCE}_l{layer}": value for layer, value in enumerate(even)}
    found[IMPORTANCE] = sum(even) / len(even)
    if dex is not None:
        details |= dex.details()
        found |= dex.metrics()
    save_file(details, subject.details / DETAILS)
    return Measured(found, {})


def slopes(subject: Subject, windows: Tensor, heads: int) -> Tensor:
    """Slope of each window's mean loss in a gate on each head, [B, T + 1] -> [B, L, H]."""
    model, tokens = subject.scorer.model, windows.to(subject.device)

    def losses() -> Tensor:
        logits = model(tokens[:, :-1])
        return F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none").mean(1)

    projections = [layer.get_submodule("o_proj") for layer in attention_layers(model)]
    return gate_slopes(projections, len(windows), heads, losses)


def _outputs(subject: Subject, tokens: Tensor, heads: int) -> Tensor:
    """What W_O gets in every layer, [L, B, T, H, e] on the CPU."""
    found: dict[int, Tensor] = {}

    def see(layer: int, kind: str, outputs: Tensor) -> None:
        if kind == AFTER:
            found[layer] = outputs.float().cpu()

    with watched_heads(subject.scorer.model, heads, see):
        subject.scorer.states(tokens)
    return torch.stack([found[layer] for layer in sorted(found)])


class _Dex:
    """Sums over positions of what Dex makes of the heads that it changed."""

    def __init__(self, tensors: dict[str, Tensor], lambdas: list[float], heads: int) -> None:
        self._tensors, self._lambdas = tensors, lambdas
        shape = (len(lambdas), heads)
        self._cosine, self._norm = (torch.zeros(shape, dtype=torch.float64) for _ in range(2))
        self._changed = torch.zeros(shape, dtype=torch.bool)
        self._positions = 0

    @classmethod
    def of(cls, subject: Subject, heads: int) -> "_Dex | None":
        """What Dex left beside a run's weights; None where it did not."""
        path = None if subject.model is None else subject.model / ADAPTER
        if path is None or subject.model is None or not path.is_file():
            return None
        tensors = load_file(path)
        if not any("dex_difference" in name for name in tensors):
            return None
        trained = read_result(subject.model / TRAINING).metrics
        layers = len(attention_layers(subject.scorer.model))
        return cls(tensors, [float(trained[lambda_metric(n)] or 0) for n in range(layers)], heads)

    def add(self, outputs: Tensor) -> None:
        """Add positions, [L, N, H, e]."""
        for layer, (own, lam) in enumerate(zip(outputs.double(), self._lambdas, strict=True)):
            part = f"layers.{layer}.self_attn.o_proj.dex_"
            heads, difference = self._named(part + "heads"), self._named(part + "difference")
            selected = own[:, heads]  # [N, k, e]
            by_head = difference.double().expand(len(heads), *difference.shape[-2:])
            change = lam * torch.einsum("nke,kef->nkf", selected, by_head)
            self._cosine[layer, heads] += F.cosine_similarity(selected, change, dim=-1).sum(0)
            ratio = change.norm(dim=-1) / selected.norm(dim=-1).clamp_min(1e-300)
            self._norm[layer, heads] += ratio.sum(0)
            self._changed[layer, heads] = True
        self._positions += outputs.shape[1]

    def details(self) -> dict[str, Tensor]:
        """Means over positions; NaN for the heads that were left alone."""
        nothing = torch.full_like(self._cosine, math.nan)
        return {
            "cosine": torch.where(self._changed, self._cosine / self._positions, nothing),
            "norm": torch.where(self._changed, self._norm / self._positions, nothing),
        }

    def metrics(self) -> Metrics:
        """Means over the heads that were changed."""
        return {f"dex_{name}": float(one.nanmean()) for name, one in self.details().items()}

    def _named(self, end: str) -> Tensor:
        (found,) = (one for name, one in self._tensors.items() if name.endswith(end))
        return found


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
