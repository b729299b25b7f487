"""The memory that a training job needs, compared with what is free before it starts.

    states       weights, gradients and optimizer states in float32, in bf16 a copy of the weights
    activations  what every layer keeps for the backward pass (see `models.sizes`), or its input
                 where it is computed again, and the layers that are differentiated at the time
    logits       those of one chunk, and the gradients of what makes them
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
from difftransformer.training.method import Planned
from difftransformer.training.methods import configure
from difftransformer.training.process import return_freed_memory

logger = logging.getLogger(__name__)

KEPT_MEMORY = 1.2
"""Memory of a CPU process that keeps what is freed, as a multiple of its tensors."""
CHECKPOINTED_LAYERS = 4.5
"""Layers whose activations a CPU process holds at a time where they are computed again: the one
computed, its gradients, and the gaps that blocks of both leave. A GPU has the first two."""
ADAPTED_LAYER = 0.75
"""Share of a layer's activations at work in its backward pass, of models of transformers, whose
layers free more as they go; of ours a whole one."""
ADAPTED_GAPS = 2.0
"""Memory of an adapted model of transformers where freed memory is kept, as a multiple."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a job needs at its peak beyond a process that has only loaded its code."""

    states: float
    activations: float
    logits: float
    checkpoint: float

    @property
    def peak(self) -> float:
        """All of them at a time."""
        return self.states + self.activations + self.logits + self.checkpoint

    def lower(self, config: TrainingConfig, model: ModelConfig) -> str:
        """Name the settings to lower: those behind the largest part."""
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


def estimate_memory(slice: RunConfig, device_type: str) -> MemoryEstimate:
    """Estimate what one process of a training needs on a "cpu" or a "cuda" device, from sizes."""
    model, config, on_gpu = slice.model, slice.training, device_type == "cuda"
    parameters = count_parameters(model)
    planned = Planned(parameters, 2 * parameters)
    if slice.adapt is not None:
        planned = configure(slice.adapt).planned(model)
    added = planned.trained if planned.trained < parameters else 0
    copies = 2.0 * parameters if config.precision == "bf16" else 0.0
    states = 4.0 * (parameters + added + planned.trained + planned.kept) + copies
    if config.world_size > 1:
        layer, outside = layer_and_other_parameters(model)
        # Embedding and output stay, of the layers one computes while the next is gathered.
        states = states / config.world_size + (8.0 + copies / parameters) * (outside + 2 * layer)
    activations, working = _activations(slice, on_gpu)
    positions = config.micro_batch * config.seq_len
    rows = chunk_rows(min(positions, config.loss_chunk), model.vocab_size, device_type)
    logits = 8.0 * (rows * model.vocab_size + (model.vocab_size + positions) * model.d_model)
    if on_gpu:  # whose allocator gives the memory of the logits to the layers' backward pass
        return MemoryEstimate(states, activations + working, max(0.0, logits - working), 0.0)
    activations += working
    checkpoint = 4.0 * (planned.trained + planned.kept) / config.world_size
    if config.checkpoint_every is None:  # written at the end, when only weights and states are left
        checkpoint = max(0.0, checkpoint - 4.0 * planned.trained - activations - logits)
    kept = config.backend != "eager" and slice.adapt is None
    parts = (states, activations, logits, checkpoint)
    return MemoryEstimate(*((KEPT_MEMORY if kept else 1.0) * part for part in parts))


def _activations(slice: RunConfig, on_gpu: bool) -> tuple[float, float]:
    """Return the bytes that wait for the backward pass, and those of the layers at work in it."""
    model, config = slice.model, slice.training
    backend: str = config.backend
    if backend == "auto":
        backend = "sdpa" if on_gpu or slice.adapt is not None else choose_backend("auto", "cpu")
    layer = layer_activations(
        model, backend, config.seq_len, config.seq_len, config.precision,
        masked=config.document_mask,
    )  # fmt: skip
    kept, working = layer.saved, layer.saved * (1.0 if slice.adapt is None else ADAPTED_LAYER)
    if config.activation_checkpointing != "none":
        kept = layer.inputs + (
            layer.outputs if config.activation_checkpointing == "selective" else 0.0
        )
        working *= 2.0 if on_gpu else CHECKPOINTED_LAYERS
    return config.micro_batch * model.num_layers * kept, config.micro_batch * working


def require_memory(slice: RunConfig, device: torch.device) -> None:
    """Compare the estimate with what is free; log it.

    Where the gaps of freed memory that an adapted model keeps would not fit, it is given back from
    here on.

    Raises:
        UserError: it is more; the line says what to lower. DIFFTRANSFORMER_MEMORY_CHECK=off in the
            environment only logs it.
    """
    estimate = estimate_memory(slice, device.type)
    job = f"run {slice.run}: {'adapting' if slice.adapt else 'training'}"
    require_room(estimate.peak, device, job, f"lower {estimate.lower(slice.training, slice.model)}")
    adapts = slice.adapt is not None and device.type == "cpu"
    if adapts and ADAPTED_GAPS * estimate.peak > available_bytes(device):
        return_freed_memory()
        logger.info("memory is not kept between steps: its gaps would not fit")
