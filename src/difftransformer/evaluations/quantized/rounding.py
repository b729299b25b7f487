"""Fake quantization: numbers rounded to a grid of so many bits, still stored as floats.

Attention logits by dynamic absmax: a group is divided by its largest magnitude, rounded to
2^(bits - 1) - 1 steps on either side of zero, and multiplied back (DIFF paper, section 3.7; it does
not say over which group). Weights and the key/value cache by torchao's affine primitives: a group
is divided by a step, rounded to an integer of so many bits and multiplied back, without zero point
and without clipping: the step is the smallest that keeps all of it within -2^(bits - 1) and
2^(bits - 1) - 1.

Shapes: B = batch, M = softmax maps, G = key/value heads, T = queries or new positions, S = keys,
O = outputs, I = inputs.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from difftransformer.convert.attention_hooks import attention_layers, forward_pre_hooks
from difftransformer.errors import BackendError
from difftransformer.evaluations.quantized.settings import Quantity
from difftransformer.models.attention.base import Attention, Cache
from difftransformer.models.kernels.eager import LogitHook, logit_hook
from difftransformer.models.linear import Linear
from difftransformer.models.transformer import Layer

Granularity = Literal["head", "row"]
"""What shares a largest logit: those of one sequence and map, or those of one query."""


def absmax_tap(bits: int, granularity: Granularity) -> LogitHook:
    """Return a tap for `kernels.eager.logit_hook` that quantizes the logits that are attended to.

    A logit has so many bits, its sign among them; at least 2.
    """
    assert bits >= 2, bits
    steps = 2 ** (bits - 1) - 1

    def tap(logits: Tensor, allowed: Tensor) -> Tensor:
        seen = torch.where(allowed, logits, 0.0)
        shared = (-2, -1) if granularity == "head" else (-1,)
        largest = seen.abs().amax(dim=shared, keepdim=True)
        step = torch.where(largest > 0, largest, 1.0) / steps
        rounded: Tensor = (seen / step).round_().mul_(step)
        return rounded

    return tap


@contextmanager
def rounded_logits(model: nn.Module, bits: int, granularity: Granularity) -> Iterator[None]:
    """Let every attention layer compute with logits that `absmax_tap` has rounded.

    Raises:
        BackendError: in the forward pass of a layer that hands out none.
    """
    tap, rounded = absmax_tap(bits, granularity), False

    def noticed(logits: Tensor, allowed: Tensor) -> Tensor:
        nonlocal rounded
        rounded = True
        return tap(logits, allowed)

    def require(layer: Attention, arguments: Any, output: Any) -> None:
        nonlocal rounded
        if not rounded:
            raise BackendError(
                f"{type(layer).__name__} with backend {layer.backend} hands out no attention "
                "logits, so they cannot be rounded; take backend eager, or leave attention_logits "
                "out of `what`"
            )
        rounded = False

    with ExitStack() as stack:
        for layer in attention_layers(model):
            stack.callback(layer.register_forward_hook(require).remove)
        stack.enter_context(logit_hook(noticed))
        yield


def round_affine(x: Tensor, bits: int) -> Tensor:
    """Return ``x`` in its own type on a grid of 2^bits levels, 2 to 16 bits, for each last row."""
    assert 2 <= bits <= 16, bits
    torchao = _primitives()
    block = (1,) * (x.ndim - 1) + (x.shape[-1],)
    integers = torch.int8 if bits <= 8 else torch.int32
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    scale, zero = torchao.choose_qparams_affine(
        x.float(),
        torchao.MappingType.SYMMETRIC_NO_CLIPPING_ERR,  # the default puts the largest on a tie
        block,
        integers,
        low,
        high,
        scale_dtype=torch.float32,
        zero_point_dtype=torch.int32,
    )
    stored = torchao.quantize_affine(x.float(), block, scale, zero, integers, low, high)
    rounded: Tensor = torchao.dequantize_affine(stored, block, scale, zero, integers, low, high)
    return rounded.to(x.dtype)


@contextmanager
def rounded_weights(model: nn.Module, bits: int, _: object = None) -> Iterator[None]:
    """Round every matrix [O, I] of the model's layers, and put the exact ones back at the end."""
    layers = [module for module in model.modules() if isinstance(module, Layer)]
    matrices = [one for layer in layers for one in layer.modules() if isinstance(one, Linear)]
    exact = [matrix.weight.data for matrix in matrices]
    try:
        for matrix in matrices:
            matrix.weight.data = round_affine(matrix.weight.data, bits)
        yield
    finally:
        for matrix, weight in zip(matrices, exact, strict=True):
            matrix.weight.data = weight


class RoundingCache:
    """Rounds keys and values [B, G, T, *] on their way into another cache, or without one.

    Of what comes as keys, the first ``key_heads``; None: all (see `Attention`).
    """

    def __init__(self, inner: Cache | None, bits: int, key_heads: int | None = None) -> None:
        self._inner, self._bits, self._key_heads = inner, bits, key_heads

    def update(self, keys: Tensor, values: Tensor, layer_index: int, /) -> tuple[Tensor, Tensor]:
        """See `Cache.update`: what attention reads is rounded, that of new positions too."""
        keys, part = keys.clone(), keys[:, : self._key_heads]
        keys[:, : self._key_heads] = round_affine(part, self._bits)
        values = round_affine(values, self._bits)
        if self._inner is None:
            return keys, values
        return self._inner.update(keys, values, layer_index)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """See `Cache.get_seq_length`."""
        return 0 if self._inner is None else self._inner.get_seq_length(layer_idx)


@contextmanager
def rounded_cache(model: nn.Module, bits: int, _: object = None) -> Iterator[None]:
    """Let every attention layer read rounded keys and values, whether it is given a cache or not.

    The keys of our models are stored behind the rotary embedding, so they are rounded behind it.
    """

    def round_stored(module: Attention, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        *others, inner = arguments
        return (*others, RoundingCache(inner, bits, module.num_k_heads))

    with forward_pre_hooks([(layer, round_stored) for layer in attention_layers(model)]):
        yield


Rounding = Callable[[Any, int, Granularity], AbstractContextManager[None]]
ROUNDED: Mapping[Quantity, Rounding] = {
    "attention_logits": rounded_logits,
    "weights": rounded_weights,
    "kv_cache": rounded_cache,
}
"""What rounds each quantity of a model while it is entered; only logits have a choice of groups."""


@cache
def _primitives() -> Any:
    """Import torchao, which takes a second."""
    from torchao.quantization import quant_primitives

    return quant_primitives
