"""Functions for readers of differential layers: DIFF V1's lambda, and a check of the output.

Modelling code that ships with weights can change without notice, so the captured maps are verified:
the layer's output at the last position must follow from them.

Shapes: B = sequences, T = positions, G = pairs of values, d = head_dim.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from difftransformer.convert.hf_attention.maps import CapturedAttention
from difftransformer.convert.hf_attention.softmax import Callback, raise_unreadable
from difftransformer.models.autograd import at_least_fp32
from difftransformer.models.kernels.eager import apply_attention

_TOLERANCE = 0.1
"""Largest relative difference of outputs; measured: 0.02 in bfloat16, 1.1 with wrong heads."""


class DifferentialLayer(NamedTuple):
    """A differential attention layer of a transformers model, as its reader interprets it.

    Attributes:
        captured: The captured attention, with values [B, G, T, 2d] and the output projection.
        norm: The norm of a head's output of 2d.
        head_scale: Factor of the head's output after the norm, 1 - lambda_init.
    """

    captured: CapturedAttention
    norm: nn.Module
    head_scale: float

    def output(self) -> Tensor:
        """Return the layer's output at the last position, [B, d_model], computed from its maps."""
        captured = self.captured
        assert captured.projection is not None
        block = captured.block(captured.length - 1, captured.length)
        attn = self.norm(apply_attention(block.weights, captured.values)) * self.head_scale
        out: Tensor = captured.projection(attn.flatten(2))
        return out[:, 0]


ReadLayer = Callable[[int, nn.Module, Tensor, Any], DifferentialLayer]
"""Function of layer index, attention module, its input [B, T, d_model] and keyword arguments."""


@contextmanager
def capture_differential(
    model: Any, children: set[str], read_layer: ReadLayer, callback: Callback
) -> Iterator[None]:
    """Call ``callback`` with the attention of each differential layer while the model runs.

    A differential layer is a module that has the submodules ``children``; ``read_layer`` reads it.

    Raises:
        CheckpointError: There is no such module, or its output does not follow from the maps.
    """
    layers = [
        (_layer_index(path), module)
        for path, module in model.named_modules()
        if children <= {name for name, _ in module.named_children()}
    ]
    if not layers:
        raise_unreadable(model, f"no module has {', '.join(sorted(children))}")

    def make_hook(layer: int) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
            x = args[0] if args else kwargs["hidden_states"]
            differential = read_layer(layer, module, x, kwargs)
            out = output[0] if isinstance(output, tuple) else output
            _require_close(model, layer, differential.output(), out[:, -1])
            callback(differential.captured)

        return hook

    with ExitStack() as handles:
        for layer, module in layers:
            hook = module.register_forward_hook(make_hook(layer), with_kwargs=True)
            handles.callback(hook.remove)
        yield


def lambda_full(module: Any, lambda_init: float) -> Tensor:
    """Return lambda of DIFF V1's equation 2 from a layer's vectors, in float32 or wider."""
    lambda_1, lambda_2 = (
        (at_least_fp32(getattr(module, f"lambda_q{i}")) * getattr(module, f"lambda_k{i}")).sum()
        for i in (1, 2)
    )
    out: Tensor = lambda_1.exp() - lambda_2.exp() + lambda_init
    return out


def to_heads(projected: Tensor, width: int) -> Tensor:
    """Return projected features [B, T, n width] split into heads, [B, n, T, width]."""
    return projected.view(*projected.shape[:2], -1, width).transpose(1, 2)


def _require_close(model: Any, layer: int, expected: Tensor, actual: Tensor) -> None:
    norm = actual.double().norm()
    difference = (expected.double() - actual.double()).norm()
    if not torch.isfinite(norm):
        return  # damaged weights show in the numbers
    if not bool(difference <= _TOLERANCE * norm):
        raise_unreadable(
            model,
            f"the output of layer {layer} differs by {difference / norm:.0%} from what its maps "
            "give: the reader does not know this modelling code",
        )


def _layer_index(path: str) -> int:
    """Return the layer index in a module's path."""
    return next(int(part) for part in path.split(".") if part.isdigit())
