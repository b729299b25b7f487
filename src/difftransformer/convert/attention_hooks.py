"""Hooks that capture attention maps, lambdas and head outputs of a model as it runs.

Shapes: B = windows, T = positions, L = layers, H = output heads, e = width of a head's output.
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
"""By layer index, one tensor [B] per batch: lambda averaged over positions and heads."""


@contextmanager
def capture_lambdas(model: Any) -> Iterator[Lambdas]:
    """Collect lambda of every differential layer and batch while the model runs in the context.

    Yields:
        A mapping that gets, per layer index, one [B] tensor per batch: means over heads, positions.
    """
    lambdas: dict[int, list[Tensor]] = {}

    def hook(layer: Attention, inputs: Any) -> None:
        lam = layer.lambda_per_head(inputs[0])  # broadcasts to [B, T, H]
        if lam is not None:
            lambdas.setdefault(layer.layer_index, []).append(lam.double().cpu().mean((1, 2)))

    with forward_pre_hooks([(layer, hook) for layer in attention_layers(model)]):
        yield lambdas


def lambda_means(lambdas: Lambdas) -> dict[str, float]:
    """Return each differential layer's mean lambda over heads, positions and windows.

    The keys are the metric names of `models.config.lambda_metric`.
    """
    return {
        lambda_metric(layer): float(torch.cat(list(batches)).mean())
        for layer, batches in sorted(lambdas.items())
    }


def attention_layers(model: Any) -> list[Attention]:
    """Return the attention modules of one of our models, in layer order."""
    return [module for module in model.modules() if isinstance(module, Attention)]


@contextmanager
def capture_attention(model: Any, block: int) -> Iterator[list[Iterator[AttentionBlock]]]:
    """Collect the attention maps of each layer while the model runs in the context.

    Yields:
        A list that gets one iterator per layer, of blocks of up to ``block`` queries. Layers of a
        pretrained model without attention add none.

    Raises:
        BackendError: The model runs with a mask or a cache, which the maps would leave out.
        CheckpointError: The maps of a pretrained model cannot be read.
    """
    layers: list[Iterator[AttentionBlock]] = []
    if isinstance(model, HFCausalLM):

        def append_blocks(captured: CapturedAttention) -> None:
            layers.append(captured.iter_blocks(block))

        with reader(model.inner)(model.inner, append_blocks):
            yield layers
        return

    def hook(layer: Attention, inputs: Any) -> None:
        if any(mask is not None for mask in inputs[2:]):
            raise BackendError(
                "attention maps are those of plain causal attention: run the model without mask, "
                "segment_ids and cache, one document per row"
            )
        layers.append(iter_blocks(layer, inputs[0], inputs[1], block))

    with forward_pre_hooks([(layer, hook) for layer in attention_layers(model)]):
        yield layers


class OutputProjection(NamedTuple):
    """The output projection of an attention layer.

    Attributes:
        layer: 0-based index of the layer; layers without attention have no projection.
        num_heads: Number of output heads, H.
        module: The projection; its input is the concatenated head outputs [B, T, H e].
    """

    layer: int
    num_heads: int
    module: nn.Module


@torch.no_grad()
def find_output_projections(model: Any) -> list[OutputProjection]:
    """Return the output projection of every attention layer.

    Raises:
        CheckpointError: The layers of a pretrained model cannot be read, or their numbers of
            heads differ.
    """
    if not isinstance(model, HFCausalLM):
        return [
            OutputProjection(layer.layer_index, layer.num_heads, layer.o_proj)
            for layer in attention_layers(model)
        ]
    projections: list[OutputProjection] = []

    def append_projection(captured: CapturedAttention) -> None:
        if captured.projection is None:
            raise_unreadable(model.inner, f"layer {captured.layer} has no output projection")
        num_heads = captured.queries.shape[1]
        projections.append(OutputProjection(captured.layer, num_heads, captured.projection))

    with reader(model.inner)(model.inner, append_projection):
        model.hidden_states(torch.zeros(1, 2, dtype=torch.long, device=model.output_weight.device))
    if len({projection.num_heads for projection in projections}) > 1:
        raise_unreadable(model.inner, "its layers differ in their number of heads")
    return projections


def head_gate_grads(
    projections: Sequence[nn.Module], sequences: int, heads: int, losses: Callable[[], Tensor]
) -> Tensor:
    """Return the gradient of each sequence's loss for a gate of 1 on each head's output.

    This is the head importance of Michel et al. 2019.

    Args:
        projections: The output projection of every layer.
        sequences: Number of sequences, B.
        heads: Number of output heads per layer, H.
        losses: Function that runs the model and returns the loss of each sequence, [B].

    Returns:
        Gradients [B, L, H] of L layers, in float64 on the CPU.
    """
    device = next(projections[0].parameters()).device
    gates = torch.ones(sequences, len(projections), heads, device=device, requires_grad=True)

    def gate_heads(layer: int) -> Callable[[nn.Module, Any], tuple[Tensor]]:
        def hook(module: nn.Module, inputs: Any) -> tuple[Tensor]:
            by_head = inputs[0].view(*inputs[0].shape[:-1], heads, -1)
            gate = gates[:, layer, None, :, None].to(by_head.dtype)
            return ((by_head * gate).flatten(-2),)

        return hook

    hooks = [(module, gate_heads(layer)) for layer, module in enumerate(projections)]
    with forward_pre_hooks(hooks), torch.enable_grad():
        (grads,) = torch.autograd.grad(losses().sum(), gates)
    return grads.double().cpu()


@contextmanager
def forward_pre_hooks(hooks: Sequence[tuple[nn.Module, Callable[..., Any]]]) -> Iterator[None]:
    """Register each (module, hook) pair as a forward pre-hook within the context."""
    with ExitStack() as handles:
        for module, hook in hooks:
            handles.callback(module.register_forward_pre_hook(hook).remove)
        yield
