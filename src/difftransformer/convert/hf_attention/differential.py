"""What readers of differential layers share: DIFF V1's lambda, checked against the layer.

Modelling code that comes with its weights can change without notice, so a reader does not take its
account for granted: the layer's output at the last position must follow from the maps it hands on.

Shapes: B = sequences, T = positions, G = pairs of values, d = head_dim.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from difftransformer.convert.hf_attention.maps import CapturedAttention
from difftransformer.convert.hf_attention.softmax import raise_unreadable
from difftransformer.models.autograd import at_least_fp32
from difftransformer.models.kernels.eager import apply_attention

_CLOSE = 0.1
"""Largest relative difference of outputs; 0.02 was measured in bfloat16, 1.1 of wrong heads."""


class DifferentialLayer(NamedTuple):
    """A layer as a reader has it.

    Attributes:
        maps: Its maps; values are [B, G, T, 2d], the projection is known.
        norm: What a head's 2d numbers go through.
        factor: What they are multiplied by after it, 1 - lambda_init.
    """

    maps: CapturedAttention
    norm: nn.Module
    factor: float

    def output(self) -> Tensor:
        """Output of the layer at the last position, [B, d_model]."""
        assert self.maps.projection is not None
        rows = self.maps.block(self.maps.length - 1, self.maps.length)
        heads = self.norm(apply_attention(rows.weights, self.maps.values)) * self.factor
        out: Tensor = self.maps.projection(heads.flatten(2))
        return out[:, 0]


Look = Callable[[int, nn.Module, Tensor, Any], DifferentialLayer]
"""Index of a layer, its attention module, its input [B, T, d_model] and its further arguments."""


@contextmanager
def capture_differential(
    model: Any, children: set[str], look: Look, see: Callable[[CapturedAttention], None]
) -> Iterator[None]:
    """Let ``see`` have the maps of the modules that have ``children``, as ``look`` reads them.

    Raises:
        CheckpointError: There is no such module, or its output does not follow from the maps.
    """
    found = [
        (_layer(path), module)
        for path, module in model.named_modules()
        if children <= {name for name, _ in module.named_children()}
    ]
    if not found:
        raise_unreadable(model, f"no module has {', '.join(sorted(children))}")

    def hook(layer: int) -> Callable[..., None]:
        def after(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
            x = args[0] if args else kwargs["hidden_states"]
            read = look(layer, module, x, kwargs)
            out = output[0] if isinstance(output, tuple) else output
            _require_same(model, layer, read.output(), out[:, -1])
            see(read.maps)

        return after

    with ExitStack() as handles:
        for layer, module in found:
            handles.callback(module.register_forward_hook(hook(layer), with_kwargs=True).remove)
        yield


def lambda_full(module: Any, init: float) -> Tensor:
    """Lambda of DIFF V1's equation 2, of vectors that are a module's own; float32 or wider."""
    first, second = (
        (at_least_fp32(getattr(module, f"lambda_q{i}")) * getattr(module, f"lambda_k{i}")).sum()
        for i in (1, 2)
    )
    found: Tensor = first.exp() - second.exp() + init
    return found


def to_heads(projected: Tensor, width: int) -> Tensor:
    """[B, T, n width] -> [B, n, T, width]."""
    return projected.view(*projected.shape[:2], -1, width).transpose(1, 2)


def _require_same(model: Any, layer: int, ours: Tensor, theirs: Tensor) -> None:
    size = theirs.double().norm()
    apart = (ours.double() - theirs.double()).norm()
    if not torch.isfinite(size):
        return  # damaged weights show in the numbers
    if not bool(apart <= _CLOSE * size):
        what = f"does not put out what follows from its maps, by {apart / size:.0%}"
        raise_unreadable(model, f"layer {layer} {what}: its code is not what the reader knows")


def _layer(path: str) -> int:
    """Index of the layer that a module lies in."""
    return next(int(part) for part in path.split(".") if part.isdigit())
