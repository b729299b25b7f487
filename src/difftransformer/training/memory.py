"""The memory that a training job will need, compared with what there is before it starts.

    step        weights, gradients and two moments (4 bytes each; in bf16 a copy of the weights,
                2), what the layers keep for the backward pass, the gradients inside one layer, and
                one chunk of logits
    checkpoint  weights and moments, and a copy of them that is being written; where training goes
                on meanwhile the copy is part of a step; of a GPU's memory nothing

Shapes: B = sequences of a micro-batch, T = positions, D = d_model, V = vocabulary, C = chunk.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from difftransformer.config.run import RunSlice
from difftransformer.config.training import TrainingConfig
from difftransformer.errors import UserError
from difftransformer.models.config import ModelConfig
from difftransformer.models.device import autocast
from difftransformer.models.kernels import choose_backend
from difftransformer.models.language_model import CausalModel
from difftransformer.models.loss import rows_of_chunk
from difftransformer.models.memory import (
    saved_bytes,
    saved_bytes_per_layer,
    selected_bytes_per_layer,
)
from difftransformer.models.sizes import count_parameters, layer_and_outside
from difftransformer.training.method import Method
from difftransformer.training.process import return_freed_memory

logger = logging.getLogger(__name__)

VARIABLE = "DIFFTRANSFORMER_MEMORY_CHECK"
LAYER_BACKWARD = 1.4
"""Bytes at work in a layer's backward pass as a share of what it kept, with the allocator's gaps:
1.1 to 1.5 measured over widths 128 to 512, 128 to 1024 positions, 2 and 4 layers on the CPU."""
ADAPTED_BACKWARD = 0.5
"""The same of a model of transformers, whose layers free more as they go: 0.3 to 0.9 measured over
all methods, widths 256 and 512, 256 and 512 positions, on the CPU."""
COMPILED = 0.9
"""What a compiled layer keeps of what it else would: 0.83 to 0.97 counted over variants in bf16,
all but one at most 0.9. A Transformer of scale gpu took 15.0 GB on an H100; this foresees 17.2."""
RECOMPUTED = 1.5
"""How much more the CPU's allocator takes in all where whole layers are computed again: 1.28 to
1.73 measured over widths 256 and 512, 8 and 16 sequences of 256 positions, 6 and 8 layers, up to
0.12 apart in repetitions. Given back to the kernel it is 1.03, for 1.6 times the CPU time."""
GAPS = 2.0
"""How much more an adapted model of transformers takes where freed memory is kept: 1.2 to 1.9
measured, as its blocks differ more in size."""

_CGROUP, _OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_GIB = 2**30


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a job needs at its peak beyond a process that has only loaded its code."""

    states: float
    """Weights, gradients, moments."""
    activations: float
    logits: float
    checkpoint: float
    """The whole of the other peak, when a checkpoint is written; on the CPU alone."""
    copy: float = 0.0
    """What is being written while training goes on; on the CPU alone."""

    @property
    def peak(self) -> float:
        """The larger of the two peaks."""
        step = self.states + self.activations + self.logits + self.copy
        return max(step, self.checkpoint)

    def lower(self, config: TrainingConfig, model: ModelConfig) -> str:
        """Say what to lower: the settings behind the largest part."""
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


def estimate_memory(slice: RunSlice, device: torch.device) -> MemoryEstimate:
    """Estimate what training a run needs on the device of one of its processes.

    Runs a layer on one sequence for it.
    """
    model, config = slice.model, slice.training
    parameters = count_parameters(model)
    states = states_per_process(model, config, parameters)
    checkpoint = 24.0 * parameters if device.type == "cpu" else 0.0
    copy = _copy(config, 12.0 * parameters / config.world, device)
    if states > available_bytes(device):
        return MemoryEstimate(states, 0, 0, checkpoint, copy)  # too large to try even one layer
    backend = choose_backend(config.backend, device.type, config.precision)
    layer = saved_bytes_per_layer(
        model, backend, config.seq_len, device, config.precision, masked=config.document_mask
    )
    activations, logits = activations_and_logits(slice, layer, device.type)
    if config.recompute == "layer" and device.type == "cpu":
        activations += (RECOMPUTED - 1) * (states + activations + logits)
    return MemoryEstimate(states, activations, logits, checkpoint, copy)


def activations_and_logits(
    slice: RunSlice, layer: float, device_type: str, backward: float = LAYER_BACKWARD
) -> tuple[float, float]:
    """Bytes of a micro-batch's activations, and of logits beside them.

    A GPU's allocator gives to the layers' backward pass what the logits had; that of the CPU, whose
    blocks are cut as they come, was measured to need both.

    Args:
        slice: The run.
        layer: Bytes that a layer, not compiled, keeps of a sequence.
        device_type: "cpu" or "cuda".
        backward: At work in a layer's backward pass as a share of what it kept.
    """
    model, config = slice.model, slice.training
    on_gpu = device_type == "cuda"
    of_layer = config.micro_batch * layer * (COMPILED if on_gpu and config.compile else 1.0)
    kept, at_work = of_layer * model.num_layers, of_layer * backward
    if config.recompute != "none":
        each = 4.0 * config.seq_len * model.d_model  # a layer's input
        if config.recompute == "selective":
            each += selected_bytes_per_layer(model, config.seq_len, config.precision)
        recomputed = each * config.micro_batch * model.num_layers, of_layer * (1 + backward)
        kept, at_work = min((kept, at_work), recomputed, key=sum)
    logits = logit_bytes(slice, device_type)
    return kept + at_work, max(0.0, logits - at_work) if on_gpu else logits


def states_per_process(model: ModelConfig, config: TrainingConfig, parameters: int) -> float:
    """Weights, gradients and moments of one process: its share, and what it gathers to compute."""
    bytes_each = 16.0 if config.precision == "fp32" else 18.0
    if config.world == 1:
        return bytes_each * parameters
    layer, outside = layer_and_outside(model)
    # Embedding and output stay, of the layers one computes while the next is gathered.
    gathered = (bytes_each - 8.0) * (outside + 2 * layer)
    return bytes_each * parameters / config.world + gathered


def estimate_adaptation(
    slice: RunSlice, model: CausalModel, method: Method, device: torch.device
) -> MemoryEstimate:
    """Estimate what training an adapted model needs beyond it and its optimiser, which are there.

    Without the gaps of memory that is kept, see `training.process`. Runs the model on one sequence
    and on two for it.
    """
    config = slice.training
    trained = method.trained_parameters
    state = sum(one.nbytes for one in method.optimiser.tensors().values())
    gradients, copies = 4.0 * trained, 2.0 * trained if config.precision == "bf16" else 0.0
    # Those of one micro-batch come as what it kept goes; of several they are there before.
    held = gradients if config.micro_batch < config.share else 0.0
    checkpoint = gradients + state if device.type == "cpu" else 0.0

    def kept(sequences: int) -> int:
        tokens = torch.zeros(sequences, config.seq_len, dtype=torch.long, device=device)
        with autocast(device, config.precision):
            return saved_bytes(model, tokens)

    model.recompute(False)  # would hide what a layer keeps
    layer = (kept(2) - kept(1)) / slice.model.num_layers
    activations, logits = activations_and_logits(slice, layer, device.type, ADAPTED_BACKWARD)
    model.recompute(config.recompute == "layer")
    copy = _copy(config, state + 4.0 * trained, device)
    return MemoryEstimate(copies + held, activations, logits, checkpoint, copy)


def _copy(config: TrainingConfig, size: float, device: torch.device) -> float:
    """A checkpoint that is written behind a training; on CUDA it lies in the host's memory."""
    return size if device.type == "cpu" and config.checkpoint_every is not None else 0.0


def logit_bytes(slice: RunSlice, device_type: str) -> float:
    """A chunk's logits, their slope and a copy of it; [V, D] and [B, T, D] twice, as gradients."""
    model, config = slice.model, slice.training
    positions = config.micro_batch * config.seq_len
    rows = rows_of_chunk(min(positions, config.loss_chunk), model.vocab_size, device_type)
    return 4.0 * (3 * rows * model.vocab_size + 2 * (model.vocab_size + positions) * model.d_model)


def require_memory(slice: RunSlice, device: torch.device) -> None:
    """Compare the estimate with what is free; log it.

    Raises:
        UserError: it is more; the line says what to lower. DIFFTRANSFORMER_MEMORY_CHECK=off in the
            environment only logs it.
    """
    _require(estimate_memory(slice, device), slice, device, "training")


def require_memory_to_adapt(
    slice: RunSlice, model: CausalModel, method: Method, device: torch.device
) -> None:
    """Compare the estimate for an adapted model with what is free, as `require_memory`.

    Where the gaps of memory that is kept would not fit, freed memory is given back from here on.
    """
    estimate = estimate_adaptation(slice, model, method, device)
    _require(estimate, slice, device, "adapting")
    if device.type == "cpu" and GAPS * estimate.peak > available_bytes(device):
        return_freed_memory()
        logger.info("memory is not kept between steps: its gaps would not fit")


def _require(estimate: MemoryEstimate, slice: RunSlice, device: torch.device, what: str) -> None:
    parts = {
        "weights and optimiser": estimate.states,
        "activations": estimate.activations,
        "logits": estimate.logits,
    }
    if estimate.copy:
        parts["checkpoint"] = estimate.copy
    cure = f"lower {estimate.lower(slice.training, slice.model)}"
    require_room(estimate.peak, device, f"run {slice.run}: {what}", parts, cure)


def require_room(
    needed: float, device: torch.device, job: str, parts: Mapping[str, float], cure: str
) -> None:
    """Compare what a job needs with what is free; log it.

    Args:
        needed: Bytes.
        device: Where it runs.
        job: What needs it, for messages.
        parts: What it is made of, in bytes by name.
        cure: What to do where it is too much.

    Raises:
        UserError: it is too much. DIFFTRANSFORMER_MEMORY_CHECK=off only logs it.
    """
    free = available_bytes(device)
    made_of = ", ".join(f"{name} {size / _GIB:.2f}" for name, size in parts.items())
    found = (
        f"{job} needs about {needed / _GIB:.2f} GiB on {device} ({made_of}), "
        f"{free / _GIB:.2f} GiB are free"
    )
    logger.info("memory: %s", found)
    if needed > free and os.environ.get(VARIABLE) != "off":
        raise UserError(f"{found}: {cure}; {VARIABLE}=off tries it all the same")


def available_bytes(device: torch.device) -> float:
    """Return the memory a process can still get: of the GPU, or of the machine and its cgroup."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + unused)
    free = float(psutil.virtual_memory().available)
    for folder, limit, used in _groups():
        try:
            most, taken = ((folder / name).read_text().strip() for name in (limit, used))
            cached = _inactive_files((folder / "memory.stat").read_text())
        except OSError:
            continue  # a level without a limit, or one that a container does not show
        if most.isdecimal():
            free = min(free, int(most) - int(taken) + cached)
    return free


def _groups() -> Iterator[tuple[Path, str, str]]:
    """Folders of this process's cgroup and of all above it, with the files of limit and use."""
    try:
        lines = _OWN_CGROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if not controllers:
            mounted, files = _CGROUP, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            mounted, files = _CGROUP / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        own = mounted / place.lstrip("/")
        for folder in (own, *own.parents):
            if folder.is_relative_to(mounted):
                yield folder, *files


def _inactive_files(statistics: str) -> int:
    """Page cache that the kernel gives back when it is asked for memory."""
    found = (line.split() for line in statistics.splitlines())
    return sum(int(value) for name, value in found if name == "inactive_file")
