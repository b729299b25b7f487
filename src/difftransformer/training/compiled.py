"""torch.compile of a model's layers, one by one, for training and validation.

All layers share one graph; compiling the whole model would unroll them. Tables that grow with the
positions, such as the rotary one, stay outside, so that the second step compiles nothing.
Validation runs in the graph of a training step, with smaller batches padded to its size: without
gradients it would need another graph, minutes on a GPU, and a third for the last batch. It costs
the memory of a training step.

Shapes: B = sequences of a step, b = up to B, T = positions, D = d_model.
"""

from typing import Any

import torch
from torch import Tensor, nn

from difftransformer.models.language_model import LanguageModel
from difftransformer.training.objective import HiddenStates

GRAPHS = 200
"""Largest number of graphs per function: variants, backends and shapes in one process."""


def compiled_states(model: LanguageModel, **options: Any) -> HiddenStates:
    """Compile the layers of ``model`` in place; return its function from tokens to hidden states.

    ``forward`` is compiled, not the module, so that FSDP's hooks run outside the graph. A model
    without ``layers`` is compiled as a whole.
    """
    from torch._dynamo import config  # imports the compiler: seconds

    config.recompile_limit = max(config.recompile_limit, GRAPHS)
    config.fail_on_recompile_limit_hit = True  # else it would silently run eagerly
    layers = getattr(model, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        compiled: HiddenStates = torch.compile(model.hidden_states, **options)
        return compiled
    for layer in layers:
        layer.forward = torch.compile(layer.forward, **options)
    return model.hidden_states


def measured_states(states: HiddenStates, tokens: Tensor, rows: int) -> Tensor:
    """Return the hidden states [b, T, D] of tokens [b, T], without gradients.

    The batch is padded to ``rows`` sequences for the call, so that nothing is compiled again.
    """
    missing = rows - len(tokens)
    padded = tokens if missing <= 0 else torch.cat((tokens, tokens[:1].expand(missing, -1)))
    with torch.enable_grad():
        return states(padded).detach()[: len(tokens)]
