"""A model whose layers are compiled, one by one, for training and for what is measured beside it.

All layers share one graph, where compiling the model as a whole unrolls them; what grows with the
positions, such as the rotary table, stays outside of it, so that the second step compiles nothing.
What is measured runs in the graph of a training step, a batch of fewer sequences filled up to one
of its size: without gradients it would be another graph, of minutes on a GPU, and two with the last
batch of a validation. It costs the memory of a training step.

Shapes: B = sequences of a step, b = up to B, T = positions, D = d_model.
"""

from typing import Any

import torch
from torch import Tensor, nn

from difftransformer.models.language_model import LanguageModel
from difftransformer.training.objective import HiddenStates

GRAPHS = 200
"""Of one function: variants, backends and shapes that a process compiles it for."""


def compiled_states(model: LanguageModel, **options: Any) -> HiddenStates:
    """Compile what ``model`` computes hidden states with, in place; return how to call it.

    A layer's ``forward`` is compiled and not the layer, so that the hooks of whoever shares its
    parameters among processes run around the graph. A model without ``layers`` is compiled whole.
    """
    from torch._dynamo import config  # imports the compiler: seconds

    config.recompile_limit = max(config.recompile_limit, GRAPHS)
    config.fail_on_recompile_limit_hit = True  # else what is asked for compiled runs without
    layers = getattr(model, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        compiled: HiddenStates = torch.compile(model.hidden_states, **options)
        return compiled
    for layer in layers:
        layer.forward = torch.compile(layer.forward, **options)
    return model.hidden_states


def measured_states(states: HiddenStates, tokens: Tensor, rows: int) -> Tensor:
    """Return the hidden states [b, T, D] of tokens [b, T], by the graph of ``rows`` sequences."""
    missing = rows - len(tokens)
    filled = tokens if missing <= 0 else torch.cat((tokens, tokens[:1].expand(missing, -1)))
    with torch.enable_grad():
        return states(filled).detach()[: len(tokens)]
