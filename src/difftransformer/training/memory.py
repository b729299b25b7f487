"""Estimate of a training job's peak memory, compared with the free memory before it starts.

    states       weights, gradients and optimizer states in float32, in bf16 a copy of the weights
    activations  saved by every layer for the backward pass (see `models.sizes`), or its input with
                 activation checkpointing, and those of the layers in backward at the time
    logits       of one chunk, and the gradients of its inputs
    checkpoint   on the CPU: a copy of weights and optimizer states that is being written

Shapes: B = sequences of a micro-batch, T = positions, D = d_model, V = vocabulary.
"""

import logging
from dataclasses import dataclass

import torch

from difftransformer.config.run import RunConfig
from difftransformer.config.training import TrainingConfig
from difftransformer.machine.memory import available_bytes, require_room
from difftransformer.models.config import ModelConfig
from difftransformer.models.kernels import choose_backend
from difftransformer.models.loss import chunk_rows
from difftransformer.models.sizes import (
    count_parameters,
    layer_activations,
    layer_and_other_parameters,
)
from difftransformer.training.method import ParameterCounts
from difftransformer.training.methods import configure
from difftransformer.training.process import return_freed_memory

logger = logging.getLogger(__name__)

RETAINED_MEMORY = 1.2
"""Memory of a CPU process that keeps freed memory, as a multiple of its tensors (measured)."""
CHECKPOINTED_LAYERS = 4.5
"""Layers whose activations a CPU process holds at a time with activation checkpointing: the one
recomputed, its gradients, and fragmentation (measured). A GPU has the first two."""
ADAPTED_LAYER = 0.75
"""Fraction of a layer's activations in use during its backward pass in transformers models, whose
layers free more of them early (measured); in our models it is 1."""
ADAPTED_FRAGMENTATION = 2.0
"""Memory of a fine-tuning process that keeps freed memory, as a multiple (measured)."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Estimated bytes that a job needs at its peak, in parts, without its loaded code."""

    states: float
    activations: float
    logits: float
    checkpoint: float

    @property
    def peak(self) -> float:
        """Sum of all parts, in bytes."""
        return self.states + self.activations + self.logits + self.checkpoint

    def lower(self, config: TrainingConfig, model: ModelConfig) -> str:
        """Return the names and values of the settings that determine the largest part, as text."""
        if self.activations >= max(self.states, self.logits):
            return (
                f"training.micro_batch_size ({config.micro_batch}; gradients still accumulate to "
                f"batch_size) or training.seq_len ({config.seq_len})"
            )
        if self.logits > self.states:
            return (
                f"training.loss_chunk ({config.loss_chunk}) or model.vocab_size "
                f"({model.vocab_size})"
            )
        return (
            f"model.d_model ({model.d_model}), model.num_layers ({model.num_layers}), "
            f"model.ffn_dim ({model.ffn_dim}) or model.vocab_size ({model.vocab_size})"
        )


def estimate_memory(run_config: RunConfig, device_type: str) -> MemoryEstimate:
    """Return the estimated peak memory of one training process on a "cpu" or "cuda" device."""
    model, config, on_gpu = run_config.model, run_config.training, device_type == "cuda"
    parameters = count_parameters(model)
    counts = ParameterCounts(parameters, 2 * parameters)
    if run_config.adapt is not None:
        counts = configure(run_config.adapt).parameter_counts(model)
    added = counts.trained if counts.trained < parameters else 0
    copies = 2.0 * parameters if config.precision == "bf16" else 0.0
    states = 4.0 * (parameters + added + counts.trained + counts.optimizer) + copies
    if config.world_size > 1:
        layer, outside = layer_and_other_parameters(model)
        # Embedding and output stay gathered; one layer computes while the next is gathered.
        states = states / config.world_size + (8.0 + copies / parameters) * (outside + 2 * layer)
    activations, working = _activations(run_config, on_gpu)
    positions = config.micro_batch * config.seq_len
    rows = chunk_rows(min(positions, config.loss_chunk), model.vocab_size, device_type)
    logits = 8.0 * (rows * model.vocab_size + (model.vocab_size + positions) * model.d_model)
    if on_gpu:  # whose allocator reuses the memory of the logits in the layers' backward pass
        return MemoryEstimate(states, activations + working, max(0.0, logits - working), 0.0)
    activations += working
    checkpoint = 4.0 * (counts.trained + counts.optimizer) / config.world_size
    if config.checkpoint_every is None:  # written last, when only weights and states are left
        checkpoint = max(0.0, checkpoint - 4.0 * counts.trained - activations - logits)
    retains = config.backend != "eager" and run_config.adapt is None
    parts = (states, activations, logits, checkpoint)
    return MemoryEstimate(*((RETAINED_MEMORY if retains else 1.0) * part for part in parts))


def _activations(run_config: RunConfig, on_gpu: bool) -> tuple[float, float]:
    """Return the bytes saved for the backward pass, and those of the layers in it."""
    model, config = run_config.model, run_config.training
    backend: str = config.backend
    if backend == "auto":
        backend = (
            "sdpa" if on_gpu or run_config.adapt is not None else choose_backend("auto", "cpu")
        )
    layer = layer_activations(
        model, backend, config.seq_len, config.seq_len, config.precision,
        masked=config.document_mask,
    )  # fmt: skip
    saved, working = layer.saved, layer.saved * (1.0 if run_config.adapt is None else ADAPTED_LAYER)
    if config.activation_checkpointing != "none":
        saved = layer.inputs + (
            layer.outputs if config.activation_checkpointing == "selective" else 0.0
        )
        working *= 2.0 if on_gpu else CHECKPOINTED_LAYERS
    return config.micro_batch * model.num_layers * saved, config.micro_batch * working


def require_memory(run_config: RunConfig, device: torch.device) -> None:
    """Check that the estimated peak memory of a training is free, and log the estimate.

    On a CPU, a fine-tuning returns freed memory to the system if fragmentation would not fit.

    Raises:
        UserError: The estimate exceeds the free memory; the message says what to lower.
            DIFFTRANSFORMER_MEMORY_CHECK=off only logs it.
    """
    estimate = estimate_memory(run_config, device.type)
    job = f"run {run_config.run}: {'adapting' if run_config.adapt else 'training'}"
    require_room(
        estimate.peak, device, job, f"lower {estimate.lower(run_config.training, run_config.model)}"
    )
    adapts = run_config.adapt is not None and device.type == "cpu"
    if adapts and ADAPTED_FRAGMENTATION * estimate.peak > available_bytes(device):
        return_freed_memory()
        logger.info("memory is not kept between steps: its fragmentation would not fit")
