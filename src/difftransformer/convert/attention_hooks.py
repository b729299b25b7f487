"""Hooks on the attention layers of a model, and what they multiply the maps by that they subtract.

Shapes: B = windows, T = positions, L = layers, H = output heads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from difftransformer.convert.hf_attention.maps import CapturedAttention
from difftransformer.convert.hf_attention.registry import reader
from difftransformer.convert.hf_attention.softmax import raise_unreadable
from difftransformer.errors import BackendError
from difftransformer.models.attention.base import Attention
from difftransformer.models.attention.maps import AttentionBlock, iter_blocks
from difftransformer.models.config import lambda_metric
from difftransformer.models.language_model import HFCausalLM

Lambdas = Mapping[int, Sequence[Tensor]]
"""By layer that subtracts a map: its factors, means over positions and heads."""


@contextmanager
def capture_lambdas(model: Any) -> Iterator[Lambdas]:
    """Collect the factors of the maps that heads subtract while the model runs."""
    found: dict[int, list[Tensor]] = {}

    def hook(layer: Attention, inputs: Any) -> None:
        factors = layer.lambda_per_head(inputs[0])  # broadcast to [B, T, H]
        if factors is not None:
            found.setdefault(layer.layer_index, []).append(factors.double().cpu().mean((1, 2)))

    with hooked([(layer, hook) for layer in attention_layers(model)]):
        yield found


def lambda_means(found: Lambdas) -> dict[str, float]:
    """Metrics of the layers that subtract a map: mean over heads, positions and windows."""
    return {
        lambda_metric(layer): float(torch.cat(list(parts)).mean())
        for layer, parts in sorted(found.items())
    }


def attention_layers(model: Any) -> list[Attention]:
    """Attention layers of a model, in their order."""
    return [module for module in model.modules() if isinstance(module, Attention)]


@contextmanager
def capture_attention(model: Any, block: int) -> Iterator[list[Iterator[AttentionBlock]]]:
    """Collect the attention maps of each layer as the model runs.

    Yields:
        A list that gets one iterator per layer, of blocks of up to ``block`` queries. Layers of a
        pretrained model without attention add none.

    Raises:
        BackendError: The model runs with a mask or a cache, which the maps would leave out.
        CheckpointError: The maps of a model from elsewhere cannot be read.
    """
    layers: list[Iterator[AttentionBlock]] = []
    if isinstance(model, HFCausalLM):

        def see(maps: CapturedAttention) -> None:
            layers.append(maps.iter_blocks(block))

        with reader(model.inner)(model.inner, see):
            yield layers
        return

    def hook(layer: Attention, inputs: Any) -> None:
        if any(mask is not None for mask in inputs[2:]):
            raise BackendError(
                "attention maps are those of plain causal attention: run the model without mask, "
                "segment_ids and cache, each document in a row of its own"
            )
        layers.append(iter_blocks(layer, inputs[0], inputs[1], block))

    with hooked([(layer, hook) for layer in attention_layers(model)]):
        yield layers


class OutputProjection(NamedTuple):
    """What gets the outputs of a layer's heads side by side.

    Attributes:
        layer: 0-based index of the layer; those without attention have none.
        heads: H.
        projection: Takes [B, T, H e].
    """

    layer: int
    heads: int
    projection: nn.Module


@torch.no_grad()
def find_output_projections(model: Any) -> list[OutputProjection]:
    """Return where the heads of every attention layer come together.

    Raises:
        CheckpointError: The layers of a model from elsewhere cannot be read, or differ in heads.
    """
    if not isinstance(model, HFCausalLM):
        layers = attention_layers(model)
        return [
            OutputProjection(layer.layer_index, layer.num_heads, layer.o_proj) for layer in layers
        ]
    found: list[OutputProjection] = []

    def see(maps: CapturedAttention) -> None:
        if maps.projection is None:
            raise_unreadable(model.inner, f"layer {maps.layer} has no output projection")
        found.append(OutputProjection(maps.layer, maps.queries.shape[1], maps.projection))

    with reader(model.inner)(model.inner, see):
        model.hidden_states(torch.zeros(1, 2, dtype=torch.long, device=model.output_weight.device))
    if len({one.heads for one in found}) > 1:
        raise_unreadable(model.inner, "its layers differ in their number of heads")
    return found


def head_gate_grads(
    projections: Sequence[nn.Module], sequences: int, heads: int, losses: Callable[[], Tensor]
) -> Tensor:
    """Slope of each sequence's loss in a gate of one on each head (Michel et al. 2019).

    Args:
        projections: The output projection of every layer, which gets its heads joined.
        sequences: B.
        heads: H.
        losses: Runs the model and gives the losses, [B].

    Returns:
        [B, L, H] in float64 on the CPU.
    """
    device = next(projections[0].parameters()).device
    gates = torch.ones(sequences, len(projections), heads, device=device, requires_grad=True)

    def hook(layer: int) -> Callable[[nn.Module, Any], tuple[Tensor]]:
        def look(module: nn.Module, inputs: Any) -> tuple[Tensor]:
            by_head = inputs[0].view(*inputs[0].shape[:-1], heads, -1)
            gate = gates[:, layer, None, :, None].to(by_head.dtype)
            return ((by_head * gate).flatten(-2),)

        return look

    hooks = [(one, hook(layer)) for layer, one in enumerate(projections)]
    with hooked(hooks), torch.enable_grad():
        (found,) = torch.autograd.grad(losses().sum(), gates)
    return found.double().cpu()


@contextmanager
def hooked(hooks: Sequence[tuple[nn.Module, Callable[..., Any]]]) -> Iterator[None]:
    """Call hooks before their modules run."""
    with ExitStack() as handles:
        for module, hook in hooks:
            handles.callback(module.register_forward_pre_hook(hook).remove)
        yield
