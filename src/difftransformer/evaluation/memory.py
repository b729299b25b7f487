"""The memory that an evaluation needs, compared with what is free before its model is loaded.

weights  4 bytes each, twice where rounded ones are measured
work     what a layer makes of the positions computed at one time, or a suite of its maps
cache    keys and values of all positions, where the suite keeps them
logits   those that exist at one time, and their log-probabilities
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from difftransformer.config.evaluation import Suite
from difftransformer.machine.memory import require_room
from difftransformer.models.config import ModelConfig
from difftransformer.models.loss import chunk_rows
from difftransformer.models.sizes import (
    count_parameters,
    kv_cache_numel_per_token,
    layer_activations,
)

GAPS, CACHE_GAPS = 1.25, 1.6
"""Memory of a process on the CPU as a multiple of its tensors: those that come and go leave gaps,
and a cache that lies between them more, which varies by a quarter between equal runs."""


@dataclass(frozen=True)
class EvaluationEstimate:
    """Bytes that an evaluation needs at its peak beyond a process that has only loaded its code."""

    weights: float
    work: float
    cache: float
    logits: float
    lower: str

    @property
    def peak(self) -> float:
        """What a layer makes is gone when there are logits."""
        return self.weights + self.cache + max(self.work, self.logits)


def estimate_evaluation(
    suite: Suite,
    model: ModelConfig,
    backend: str,
    device: torch.device,
    row_length: int | None = None,
) -> EvaluationEstimate:
    """Estimate what measuring a suite needs.

    The backend is what `kernels.choose_backend` settled, ``row_length`` that of a dataset of rows.
    """
    asked = suite.asked
    reading = asked.reading(model, row_length or model.max_positions)
    rows = reading.rows
    if reading.loss_chunk is not None:
        rows = chunk_rows(min(rows, reading.loss_chunk), model.vocab_size, device.type)
    heads = model.attention.output_heads
    maps = reading.map_bytes * heads * reading.total**2
    layer = layer_activations(
        model, backend, reading.new, reading.total, asked.precision, grad=False
    ).saved
    cache = 4.0 * kv_cache_numel_per_token(model) * reading.total if reading.cached else 0.0
    gaps, cache_gaps = (GAPS, CACHE_GAPS) if device.type == "cpu" else (1.0, 1.0)
    return EvaluationEstimate(
        weights=4.0 * count_parameters(model) * (1 if asked is suite else 2),
        work=gaps * max(layer, maps) * reading.sequences,
        cache=cache_gaps * cache * reading.sequences,
        logits=gaps * 8 * rows * model.vocab_size,
        lower=reading.lower,
    )


def require_memory_to_evaluate(needed: EvaluationEstimate, device: torch.device, job: str) -> None:
    """Compare the estimate with what is free; log it under what the ``job`` is called.

    Raises:
        UserError: it is more; the line says what to lower.
    """
    cure = f"lower {needed.lower}"
    if needed.weights > needed.peak / 2:
        cure = "its weights are most of it; close other programs, or take a larger machine"
    require_room(needed.peak, device, job, cure)


def require_memory_for_files(files: Sequence[Path], device: torch.device, name: str) -> None:
    """Compare the weights of a model from elsewhere, as they are stored, with what is free.

    The least that it needs: its settings are transformers' own, so its work is not estimated.

    Raises:
        UserError: they are more.
    """
    size = sum(path.stat().st_size for path in files)
    require_room(size, device, f"{name}: loading it", "take a smaller model or a larger machine")
