"""Fake quantization: values rounded to a grid of 2^bits levels and stored as floats.

Attention logits use dynamic absmax: a group is divided by its largest magnitude, rounded to
2^(bits - 1) - 1 steps on either side of zero, and multiplied back (DIFF paper, section 3.7, which
does not name the group). Weights and the KV cache use torchao's affine primitives, symmetric and
without clipping: a group is divided by the smallest step that keeps it within -2^(bits - 1) and
2^(bits - 1) - 1, rounded to integers, and multiplied back.

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
from difftransformer.models.transformer import DecoderLayer

Granularity = Literal["head", "row"]
"""Attention logits that share a scale: all of one sequence and softmax map, or of one query."""


def absmax_quantizer(bits: int, granularity: Granularity) -> LogitHook:
    """Return a hook that quantizes unmasked attention logits to ``bits``, including the sign."""
    assert bits >= 2, bits
    steps = 2 ** (bits - 1) - 1

    def quantize(logits: Tensor, allowed: Tensor) -> Tensor:
        unmasked = torch.where(allowed, logits, 0.0)
        shared = (-2, -1) if granularity == "head" else (-1,)
        largest = unmasked.abs().amax(dim=shared, keepdim=True)
        step = torch.where(largest > 0, largest, 1.0) / steps
        rounded: Tensor = (unmasked / step).round_().mul_(step)
        return rounded

    return quantize


@contextmanager
def quantized_logits(model: nn.Module, bits: int, granularity: Granularity) -> Iterator[None]:
    """Context in which every attention layer of a model computes with quantized logits.

    Raises:
        BackendError: A layer's backend does not expose its logits; raised in the forward pass.
    """
    quantize, quantized = absmax_quantizer(bits, granularity), False

    def recording_hook(logits: Tensor, allowed: Tensor) -> Tensor:
        nonlocal quantized
        quantized = True
        return quantize(logits, allowed)

    def require(layer: Attention, arguments: Any, output: Any) -> None:
        nonlocal quantized
        if not quantized:
            raise BackendError(
                f"{type(layer).__name__} with backend {layer.backend} does not expose its "
                "attention logits, so they cannot be quantized; use backend eager"
            )
        quantized = False

    with ExitStack() as stack:
        for layer in attention_layers(model):
            stack.callback(layer.register_forward_hook(require).remove)
        stack.enter_context(logit_hook(recording_hook))
        yield


def fake_quantize_affine(x: Tensor, bits: int) -> Tensor:
    """Return ``x`` rounded to 2^bits levels, for 2 to 16 bits.

    Each row along the last axis has one scale.
    """
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
def quantized_weights(model: nn.Module, bits: int, _: object = None) -> Iterator[None]:
    """Context in which every weight matrix of a model's layers is quantized to ``bits``."""
    layers = [module for module in model.modules() if isinstance(module, DecoderLayer)]
    matrices = [part for layer in layers for part in layer.modules() if isinstance(part, Linear)]
    exact = [matrix.weight.data for matrix in matrices]
    try:
        for matrix in matrices:
            matrix.weight.data = fake_quantize_affine(matrix.weight.data, bits)
        yield
    finally:
        for matrix, weight in zip(matrices, exact, strict=True):
            matrix.weight.data = weight


class QuantizingCache:
    """KV cache that quantizes keys and values before it passes them to another cache.

    Both are [B, G, T, width] for B sequences, G heads and T new positions. Without another cache it
    stores nothing and returns the quantized keys and values. Only the first ``key_heads`` of the
    heads passed as keys are quantized; None: all.
    """

    def __init__(self, inner: Cache | None, bits: int, key_heads: int | None = None) -> None:
        self._inner, self._bits, self._key_heads = inner, bits, key_heads

    def update(self, keys: Tensor, values: Tensor, layer_index: int, /) -> tuple[Tensor, Tensor]:
        """Add new keys and values of a layer, and return all its keys and values, quantized."""
        keys, part = keys.clone(), keys[:, : self._key_heads]
        keys[:, : self._key_heads] = fake_quantize_affine(part, self._bits)
        values = fake_quantize_affine(values, self._bits)
        if self._inner is None:
            return keys, values
        return self._inner.update(keys, values, layer_index)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of positions in the other cache; 0 without one."""
        return 0 if self._inner is None else self._inner.get_seq_length(layer_idx)


@contextmanager
def quantized_cache(model: nn.Module, bits: int, _: object = None) -> Iterator[None]:
    """Context in which every attention layer of a model reads quantized keys and values.

    This holds with or without a KV cache. Our models store keys after the rotary embedding, so keys
    are quantized after it.
    """

    def add_cache(module: Attention, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        *leading, inner = arguments
        return (*leading, QuantizingCache(inner, bits, module.num_k_heads))

    with forward_pre_hooks([(layer, add_cache) for layer in attention_layers(model)]):
        yield


Quantizer = Callable[[Any, int, Granularity], AbstractContextManager[None]]
QUANTIZERS: Mapping[Quantity, Quantizer] = {
    "attention_logits": quantized_logits,
    "weights": quantized_weights,
    "kv_cache": quantized_cache,
}
"""Quantity -> context manager that quantizes it; granularity only matters for logits."""


@cache
def _primitives() -> Any:
    """Import torchao's primitives on first use: the import takes a second."""
    from torchao.quantization import quant_primitives

    return quant_primitives
