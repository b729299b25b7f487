"""Communication of a training step under FSDP2, estimated by a ring model.

A layer's weights are gathered before its forward and again before its backward pass, in the
precision that it computes in, and its gradients are reduced and scattered behind it, in float32;
embedding and output are gathered once. That is done for every micro-batch. Each is a ring over all
GPUs: every GPU sends (N - 1) / N of the bytes, one hop after the other,

    seconds = (N - 1) hop + (N - 1) / N bytes / bandwidth

Within a node the bandwidth is a GPU's own. Between nodes as many rings run as a node has GPUs, each
through another port, so that it is that of all ports together, or a GPU's own where that is less.
Nothing is taken to be hidden behind the computation, which FSDP2 does for most of it.
"""

from dataclasses import dataclass
from math import ceil

from difftransformer.config.scale import MachineConfig
from difftransformer.config.training import TrainingConfig
from difftransformer.models.config import ModelConfig
from difftransformer.models.sizes import layer_and_other_parameters, training_flops

_GATHERED = {"fp32": 4, "bf16": 2}
"""Bytes of a weight, by the precision of the training."""
_REDUCED = 4
"""Bytes of a gradient."""


@dataclass(frozen=True)
class StepCost:
    """Cost of an optimizer step on one GPU.

    Attributes:
        gpus: N.
        sequences: Of a step; more than a training has where there are more GPUs than sequences.
        sent: Bytes that it sends.
        communication: Seconds of all collectives, one after the other.
        computation: Seconds of its share of the operations.
    """

    gpus: int
    sequences: int
    sent: float
    communication: float
    computation: float

    @property
    def share(self) -> float:
        """Communication time over computation time; above 1 it cannot be hidden."""
        return self.communication / self.computation


def step_cost(
    model: ModelConfig, training: TrainingConfig, gpus: int, machine: MachineConfig
) -> StepCost:
    """Return the cost of a step on a given number of GPUs."""
    sequences = max(training.batch_size, gpus)
    share = sequences / gpus
    most = ceil(share)  # of the GPU that has the most
    micro_batches = ceil(most / min(training.micro_batch, most))
    layer, outside = layer_and_other_parameters(model)
    # Of layers: gather, gather, reduce; of what is outside of them: gather, reduce.
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
    """Return the FLOPs per trained token, including activation checkpointing."""
    once = training_flops(model, training.seq_len)
    return once * 4 / 3 if training.activation_checkpointing == "layer" else once


def bandwidth(gpus: int, machine: MachineConfig) -> float:
    """Return GB/s of a ring over so many GPUs."""
    if gpus <= machine.gpus_per_node:
        return machine.node_gb_s
    return min(machine.node_gb_s, machine.gpus_per_node * machine.network_gb_s)
