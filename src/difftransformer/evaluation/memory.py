"""The memory that an evaluation will need, compared with what there is before its model is loaded.

    weights  4 bytes each, twice where rounded ones are measured
    work     what a layer makes of the positions computed at one time, or a suite of its maps
    cache    keys and values of all positions, where the suite keeps them
    logits   those that exist at one time, and their log-probabilities

Shapes: B = sequences in memory, T = positions computed at one time, S = positions with those of
the cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from difftransformer.config.evaluation import SuiteConfig, measured_suite
from difftransformer.config.model import ModelConfig
from difftransformer.models.attention.registry import configure
from difftransformer.models.footprint import cached_numbers
from difftransformer.models.loss import rows_of_chunk
from difftransformer.models.memory import working_bytes
from difftransformer.models.transformer import count_parameters
from difftransformer.training.memory import GIB, available_bytes, require_room

LONGEST_ITEM = 512
"""Tokens of a question or of a solved example at most, where a suite reads them only later."""
MAP_BYTES = {"outliers": 34.0, "sinks": 22.0, "context_rms": 18.0}
"""Bytes for each weight of a layer's maps, or logit before it, in suites that look at them all:
the selection of those that causal attention sees, or sums in float64."""

GAPS = 1.3
"""What an allocator holds for tensors that come and go, and for those of a cache that lie between
them, as a multiple: 1.1 to 1.5 measured on the CPU with eager and blocked attention."""


@dataclass(frozen=True)
class Reading:
    """What a suite has in memory at one time.

    Attributes:
        sequences: B.
        new: T.
        total: S.
        rows: Positions whose logits exist.
        lower: The settings to lower, with their values.
        cached: Whether keys and values of S positions are kept.
    """

    sequences: int
    new: int
    total: int
    rows: int
    lower: str
    cached: bool = False


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
    suite: SuiteConfig,
    model: ModelConfig,
    backend: str,
    device: torch.device,
    row_length: int | None = None,
) -> EvaluationEstimate:
    """Estimate what measuring a suite needs; runs a layer on one sequence for it.

    Args:
        suite: What is measured.
        model: The model's settings.
        backend: Attention backend that `kernels.choose_backend` settled.
        device: Where it runs.
        row_length: Tokens of a row of the dataset; None for running text.
    """
    asked: Any = measured_suite(suite)
    reading = _reading(asked, model, row_length or model.max_positions)
    weights = 4.0 * count_parameters(model) * (1 if asked is suite else 2)
    if weights > available_bytes(device):
        return EvaluationEstimate(weights, 0, 0, 0, reading.lower)  # too large to try a layer
    rows = reading.rows
    if hasattr(asked, "loss_chunk"):
        rows = rows_of_chunk(min(rows, asked.loss_chunk), model.vocab_size, device.type)
    heads = configure(model.attention, model.d_model).output_heads
    maps = MAP_BYTES.get(asked.kind, 0.0) * heads * reading.total**2
    work = working_bytes(model, backend, reading.new, reading.total, device, asked.precision)
    cache = 4.0 * cached_numbers(model) * reading.total if reading.cached else 0.0
    return EvaluationEstimate(
        weights=weights,
        work=GAPS * max(work, maps) * reading.sequences,
        cache=GAPS * cache * reading.sequences,
        logits=8.0 * rows * model.vocab_size,
        lower=reading.lower,
    )


def require_memory_to_evaluate(needed: EvaluationEstimate, device: torch.device, job: str) -> None:
    """Compare the estimate with what is free; log it.

    Args:
        needed: What `estimate_evaluation` found.
        device: Where it runs.
        job: What is measured of which model, for messages.

    Raises:
        UserError: it is more; the line says what to lower.
    """
    parts = (
        f"weights {needed.weights / GIB:.2f}, work {needed.work / GIB:.2f}, cache "
        f"{needed.cache / GIB:.2f}, logits {needed.logits / GIB:.2f}"
    )
    cure = f"lower {needed.lower}"
    if needed.weights > needed.peak / 2:
        cure = "close other programs, or take a larger machine"
    require_room(needed.peak, device, job, parts, cure)


def require_memory_for_files(files: Sequence[Path], device: torch.device, name: str) -> None:
    """Compare the weights of a model from elsewhere, as they are stored, with what is free.

    The least that it needs: its settings are transformers' own, so its work is not estimated.

    Raises:
        UserError: they are more.
    """
    size = sum(path.stat().st_size for path in files)
    cure = "take a smaller model or a larger machine"
    require_room(size, device, f"{name}: loading it", f"weights {size / GIB:.2f}", cure)


def _reading(suite: Any, model: ModelConfig, longest: int) -> Reading:
    """Say what a suite has in memory; ``longest``: positions of its longest prompt or row."""
    batch, name = suite.batch_size, suite.kind
    of_batch = f"{name}.batch_size ({batch})"
    match name:
        case "validation_slices" | "outliers" | "sinks" | "context_rms" | "nll_by_position":
            key = "length" if name == "nll_by_position" else "seq_len"
            length = min(getattr(suite, key), model.max_positions)
            rows = batch * length if hasattr(suite, "loss_chunk") else 0
            lower = f"{of_batch} or {name}.{key} ({length})"
            return Reading(batch, length, length, rows, lower, cached=name == "context_rms")
        case "recall":
            return Reading(batch, longest, longest, batch * suite.queries, of_batch)
        case "language_understanding":
            length = min(model.max_positions, LONGEST_ITEM * (1 + suite.num_fewshot))
            return Reading(batch, length, length, batch * length, of_batch)
        case "mathematics":
            total = min(model.max_positions, LONGEST_ITEM + suite.max_new_tokens)
            lower = f"{of_batch} or {name}.max_new_tokens ({suite.max_new_tokens})"
            new = min(total, LONGEST_ITEM)
            return Reading(batch, new, new, batch, lower, cached=True)
    lower = f"{name}.chunk ({suite.chunk})"
    if lengths := getattr(suite, "lengths", None):
        longest = min(max(lengths), model.max_positions)
        lower += f" or {name}.lengths ({longest})"
    return Reading(1, min(suite.chunk, longest), longest, 1, lower, cached=True)
