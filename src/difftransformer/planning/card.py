"""The memory of the planned machine's card against what each training will need on it.

Nothing is computed for it: activations are those of tensors without content, states follow from
sizes. So a training that cannot fit is refused before its first job, on a machine without a GPU.
"""

import json
from dataclasses import asdict, dataclass, field, replace

from difftransformer.config.run import RunSlice
from difftransformer.config.scale import MachineConfig
from difftransformer.errors import ConfigError
from difftransformer.models.config import ModelConfig
from difftransformer.models.memory import imagined_bytes_per_layer
from difftransformer.models.sizes import count_parameters
from difftransformer.training.memory import (
    MemoryEstimate,
    activations_and_logits,
    states_per_process,
)
from difftransformer.training.methods import configure

_GIB = 2**30
_OF_TRANSFORMERS = {"fp32": 1.1, "bf16": 1.35}
"""What a layer of transformers' Llama keeps, of what one of ours does; the same at two widths."""


_HOST_MB = 16_000
"""What profiles ask for any job; half of it is for a training's process and its data."""


def host_mb(model: ModelConfig) -> int:
    """Return the MB of its node's own memory that a training asks for.

    A checkpoint is copied there before it is written, weights and two moments in float32; in the
    end one process has the whole model, twice while it is written.
    """
    return max(_HOST_MB, _HOST_MB // 2 + round(24e-6 * count_parameters(model)))


@dataclass
class Card:
    """The card of a machine."""

    machine: MachineConfig
    _layers: dict[tuple[str, int, str, bool], float] = field(default_factory=dict)

    def estimate(self, slice: RunSlice) -> MemoryEstimate:
        """Return what one process of a training will have on it at its peak."""
        layer, parameters = self._layer(slice), count_parameters(slice.model)
        if slice.adapt is None:
            states = states_per_process(slice.model, slice.training, parameters)
        else:
            layer *= _OF_TRANSFORMERS[slice.training.precision]
            states = _adapted_states(slice)
        activations, logits = activations_and_logits(slice, layer, "cuda")
        return MemoryEstimate(states, activations, logits, checkpoint=0.0)

    def require_room(self, slice: RunSlice, place: str) -> None:
        """Check that a training fits.

        Raises:
            ConfigError: It does not; the line says what to change.
        """
        found = self.estimate(slice)
        if slice.training.device == "cpu" or found.peak <= self.machine.memory_gib * _GIB:
            return
        parts = ", ".join(
            f"{name} {size / _GIB:.0f}"
            for name, size in (
                ("weights and optimiser", found.states),
                ("activations", found.activations),
                ("logits", found.logits),
            )
        )
        raise ConfigError(
            f"{place}: run {slice.run} needs {found.peak / _GIB:.0f} GiB on each of its "
            f"{slice.training.world} GPUs ({parts}), a {self.machine.card} has "
            f"{self.machine.memory_gib:g}: {self._cure(slice, found)}"
        )

    def _cure(self, slice: RunSlice, found: MemoryEstimate) -> str:
        config = slice.training
        if found.states > self.machine.memory_gib * _GIB and slice.adapt is None:
            return f"raise training.world ({config.world})"
        cures = [
            f"lower training.micro_batch_size ({config.micro_batch}), training.seq_len "
            f"({config.seq_len}) or training.loss_chunk ({config.loss_chunk})"
        ]
        if config.recompute != "layer":
            cures.insert(0, "set training.recompute to layer")
        if slice.adapt is None:
            cures.append(f"raise training.world ({config.world})")
        return "; or ".join(cures)

    def _layer(self, slice: RunSlice) -> float:
        """What a layer keeps of a sequence; layers are alike, whatever is around them."""
        config = slice.training
        layer = replace(slice.model, num_layers=1, vocab_size=1)
        masked = config.document_mask
        key = (json.dumps(asdict(layer)), config.seq_len, config.precision, masked)
        if key not in self._layers:
            found = imagined_bytes_per_layer(
                slice.model, config.seq_len, config.precision, masked=masked
            )
            self._layers[key] = found
        return self._layers[key]


def _adapted_states(slice: RunSlice) -> float:
    """The base, gradients and moments of what trains, and in bf16 a copy of all weights."""
    assert slice.adapt is not None
    parameters, planned = count_parameters(slice.model), configure(slice.adapt).planned(slice.model)
    copies = 2.0 * parameters if slice.training.precision == "bf16" else 0.0
    added = 0 if planned.trained >= parameters else planned.trained
    return 4.0 * (parameters + added + planned.trained + planned.kept) + copies
