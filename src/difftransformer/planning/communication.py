"""Communication time of a training step under FSDP2, estimated by a ring model.

A layer's weights are all-gathered before its forward pass and again before its backward pass, in
the precision of the computation. Its gradients are reduce-scattered after its backward pass, in
float32. Embedding and output weights are all-gathered once. All this happens for every micro-batch.

Each collective is a ring over all N GPUs. Every GPU sends (N - 1) / N of the bytes in N - 1 hops:

    seconds = (N - 1) hop + (N - 1) / N bytes / bandwidth

Here ``hop`` is the latency of a hop in seconds. Within a node, the bandwidth is that of one GPU.
Between nodes, as many rings run as a node has GPUs, each through its own network port. The
bandwidth is then that of all ports together, but at most that of one GPU. The estimate assumes no
overlap with computation, although FSDP2 hides most of the communication behind it.
"""

from dataclasses import dataclass
from math import ceil

from difftransformer.config.scale import MachineConfig
from difftransformer.config.training import TrainingConfig
from difftransformer.models.config import ModelConfig
from difftransformer.models.sizes import layer_and_other_parameters, training_flops

_GATHERED = {"fp32": 4, "bf16": 2}
"""Bytes per gathered weight, by the precision of the training."""
_REDUCED = 4
"""Bytes per reduced gradient, which is in float32."""


@dataclass(frozen=True)
class StepCost:
    """Cost of an optimizer step on one GPU.

    Attributes:
        gpus: Number of GPUs.
        sequences: Sequences per step over all GPUs; at least one per GPU, so this may exceed the
            batch size of the training.
        sent: Bytes that the GPU sends.
        communication: Seconds of all collectives, without overlap.
        computation: Seconds of the GPU's part of the FLOPs.
    """

    gpus: int
    sequences: int
    sent: float
    communication: float
    computation: float

    @property
    def share(self) -> float:
        """Ratio of communication to computation time; above 1 overlap cannot hide all of it."""
        return self.communication / self.computation


def step_cost(
    model: ModelConfig, training: TrainingConfig, gpus: int, machine: MachineConfig
) -> StepCost:
    """Return the estimated cost of an optimizer step on ``gpus`` GPUs of a machine."""
    sequences = max(training.batch_size, gpus)
    share = sequences / gpus
    most = ceil(share)  # sequences of the GPU that has the most
    micro_batches = ceil(most / min(training.micro_batch, most))
    layer, outside = layer_and_other_parameters(model)
    # Per layer: two all-gathers and one reduce-scatter. Outside of the layers: one of each.
    gathered = _GATHERED[training.precision]
    size = (2 * gathered + _REDUCED) * model.num_layers * layer + (gathered + _REDUCED) * outside
    collectives = 3 * model.num_layers + 2
    sent = micro_batches * size * (gpus - 1) / gpus
    hops = micro_batches * collectives * (gpus - 1)
    flops = operations(model, training) * training.seq_len * share
    return StepCost(
        gpus=gpus,
        sequences=sequences,
        sent=sent,
        communication=hops * machine.hop_us * 1e-6 + sent / (1e9 * bandwidth(gpus, machine)),
        computation=flops / machine.speed,
    )


def operations(model: ModelConfig, training: TrainingConfig) -> float:
    """Return the FLOPs per trained token, with the recomputation of activation checkpointing."""
    once = training_flops(model, training.seq_len)
    return once * 4 / 3 if training.activation_checkpointing == "layer" else once


def bandwidth(gpus: int, machine: MachineConfig) -> float:
    """Return the bandwidth of a ring over ``gpus`` GPUs of a machine in GB/s."""
    if gpus <= machine.gpus_per_node:
        return machine.node_gb_s
    return min(machine.node_gb_s, machine.gpus_per_node * machine.network_gb_s)
