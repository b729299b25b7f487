"""Estimate of an evaluation's memory, which must fit the free memory before a model is loaded.

weights      4 bytes each; twice for suites with rounded copies
activations  of one layer for the positions computed at one time, or the suite's attention maps
cache        KV cache of all positions, if the suite uses one
logits       that exist at one time, and their log-probabilities
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
"""Memory of a CPU process as a multiple of its tensors: freed tensors leave gaps (fragmentation),
more so around a cache, where it varies by a quarter between equal runs."""


@dataclass(frozen=True)
class EvaluationEstimate:
    """Estimated peak memory of an evaluation in bytes, beyond a process with its code loaded.

    ``lower`` names the settings to lower if memory is short.
    """

    weights: float
    activations: float
    cache: float
    logits: float
    lower: str

    @property
    def peak(self) -> float:
        """Peak memory in bytes; activations are freed before logits are allocated."""
        return self.weights + self.cache + max(self.activations, self.logits)


def estimate_evaluation(
    suite: Suite,
    model: ModelConfig,
    backend: str,
    device: torch.device,
    row_length: int | None = None,
) -> EvaluationEstimate:
    """Return the estimated memory that a suite needs to evaluate a model.

    Args:
        suite: The suite.
        model: Configuration of the model.
        backend: Attention backend, from `kernels.choose_backend`.
        device: Device that the model is evaluated on.
        row_length: Tokens of a generated row of the dataset; None for a dataset of text.
    """
    base_suite = suite.base_suite
    reading = base_suite.reading(model, row_length or model.max_positions)
    rows = reading.rows
    if reading.loss_chunk is not None:
        rows = chunk_rows(min(rows, reading.loss_chunk), model.vocab_size, device.type)
    heads = model.attention.output_heads
    maps = reading.map_bytes * heads * reading.total**2
    layer = layer_activations(
        model, backend, reading.new, reading.total, base_suite.precision, grad=False
    ).saved
    cache = 4.0 * kv_cache_numel_per_token(model) * reading.total if reading.cached else 0.0
    gaps, cache_gaps = (GAPS, CACHE_GAPS) if device.type == "cpu" else (1.0, 1.0)
    return EvaluationEstimate(
        weights=4.0 * count_parameters(model) * (1 if base_suite is suite else 2),
        activations=gaps * max(layer, maps) * reading.sequences,
        cache=cache_gaps * cache * reading.sequences,
        logits=gaps * 8 * rows * model.vocab_size,
        lower=reading.lower,
    )


def require_memory_to_evaluate(needed: EvaluationEstimate, device: torch.device, job: str) -> None:
    """Check that an evaluation's estimated memory fits the free memory, and log both.

    ``job`` describes the evaluation in messages.

    Raises:
        UserError: The estimate exceeds the free memory; the message names the setting to lower.
    """
    cure = f"lower {needed.lower}"
    if needed.weights > needed.peak / 2:
        cure = "most of it are weights; close other programs, or use a larger machine"
    require_room(needed.peak, device, job, cure)


def require_memory_for_files(files: Sequence[Path], device: torch.device, name: str) -> None:
    """Check that the weight files of a pretrained model fit the free memory.

    This is a lower bound: activations of transformers' models are not estimated.

    Raises:
        UserError: The weights do not fit.
    """
    size = sum(path.stat().st_size for path in files)
    require_room(size, device, f"{name}: loading it", "use a smaller model or a larger machine")
