"""Standalone attention layers: each registered variant as a module with plain arguments.

``from difftransformer import DifferentialAttention`` returns `layer_class` of a registered variant;
likewise for every class of the registry. A layer is a subclass of the variant's class, so its state
dict is that of ``layers.<l>.attention`` in a model of this package.

Shapes: B = batch, T = new positions, S = all positions including cached ones, D = d_model,
H = output heads, G = key/value heads, d = head_dim.
"""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from difftransformer.errors import ConfigError
from difftransformer.models.attention.base import Attention, Cache
from difftransformer.models.attention.maps import attention_maps
from difftransformer.models.attention.registry import (
    attention_class,
    configure,
    variant_location,
    variants,
)
from difftransformer.models.config import AttentionConfig
from difftransformer.models.documents import document_mask, unmask_unattended
from difftransformer.models.initialization import init_weights
from difftransformer.models.kernels import choose_backend
from difftransformer.models.rotary import Rope, RotaryTable

_HALF_DTYPES = (torch.bfloat16, torch.float16)


class AttentionLayer(Attention):
    """Causal self-attention of one variant as a module, [B, T, D] -> [B, T, D].

    The constructor initializes the parameters from torch's global generator: matrices from N(0,
    1/in_features). In a deep model divide ``o_proj.weight`` by sqrt(2 num_layers).

    Attributes:
        variant: Name of the variant in the registry.
        config: All settings, including defaults.
    """

    variant: ClassVar[str]

    def __init__(  # noqa: PLR0913 - includes the arguments of torch's modules
        self,
        d_model: int,
        num_heads: int | None = None,
        head_dim: int | None = None,
        num_kv_heads: int | None = None,
        layer_index: int | None = None,
        backend: str = "auto",
        *,
        rope_theta: float | None = 10_000.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        **settings: Any,
    ) -> None:
        """Create and initialize the parameters.

        Args:
            d_model: Width of the residual stream, D.
            num_heads: Output heads H; a head with two softmax maps counts once. None: as many of
                ``head_dim`` as fit D.
            head_dim: Width d of a query and a key of one map, even. None: chosen so that
                ``num_heads`` heads fill D. A head of V1 has an output of 2d, so H is D / 2d.
            num_kv_heads: Key/value heads G, a divisor of H; None: H.
            layer_index: 0-based index of the layer in its model: its slot in a cache, and the depth
                in V1's lambda_init. None: no cache, and no settings that depend on depth.
            backend: "eager", "blocked", "sdpa", "flash_attn", "fused", or "auto", which picks
                by the device of the weights, now and after `to`.
            rope_theta: Base of the rotary frequencies; None: no positions, unless passed to
                `forward`.
            device: Device of the parameters, as in torch's modules.
            dtype: Floating-point type of the parameters, as in torch's modules.
            **settings: Options of the variant, such as ``lambda_init``; see the class.

        Raises:
            ConfigError: A setting is unknown, of the wrong type, or does not fit the others; or
                ``layer_index`` is missing and the settings depend on it.
            BackendError: No such backend.
        """
        d_model, num_heads, head_dim, num_kv_heads = map(
            _as_python_number, (d_model, num_heads, head_dim, num_kv_heads)
        )
        settings = {key: _as_python_number(value) for key, value in settings.items()}
        sizes = {"num_heads": num_heads, "head_dim": head_dim, "num_kv_heads": num_kv_heads}
        sizes = {key: value for key, value in sizes.items() if value is not None}
        name = type(self).__name__
        if "variant" in settings:
            raise ConfigError(f"{name}: its variant is {self.variant}; leave `variant` out")
        if head_dim is None:
            sizes["head_dim"] = _head_dim(self.variant, d_model, num_heads, name)
        options = {"variant": self.variant, **sizes, **settings}
        config = configure(options, d_model, location=name)
        self._requested_backend = backend
        initial_backend = choose_backend(backend, "cpu") if backend == "auto" else backend
        with nullcontext() if device is None else torch.device(device):
            super().__init__(config, d_model, layer_index, initial_backend)  # type: ignore[arg-type]
        self.config: AttentionConfig = config
        self._rotary = None if rope_theta is None else RotaryTable(self.head_dim, rope_theta)
        if dtype is not None:
            self.to(dtype)
        self._select_backend()
        if not self.o_proj.weight.is_meta:
            self.reset_parameters()

    @property
    def layer_index(self) -> int:
        """Index of the layer in its model, from 0.

        Raises:
            ConfigError: The layer has no index.
        """
        if self._layer_index is None:
            raise ConfigError(
                f"{type(self).__name__}.layer_index: missing; a cache and a lambda_init by depth "
                "need it: pass each layer its index in the model, counted from 0"
            )
        return self._layer_index

    @layer_index.setter
    def layer_index(self, index: int | None) -> None:
        if index is not None and (not isinstance(index, Integral) or index < 0):
            raise ConfigError(
                f"{type(self).__name__}.layer_index: needs a whole number from 0, got {index!r}"
            )
        self._layer_index = None if index is None else int(index)

    def reset_parameters(self, seed: int | None = None) -> None:
        """Initialize all parameters again, from ``seed`` or torch's global generator.

        Values are drawn in float32 on the CPU, so they are the same up to rounding on every device
        and in every dtype.
        """
        seed = int(torch.randint(2**31, (), device="cpu")) if seed is None else seed
        initialized = copy.deepcopy(self).to("cpu", torch.float32)
        init_weights(initialized, seed)
        self.load_state_dict(initialized.state_dict())

    def forward(
        self,
        x: Tensor,
        rope: Rope | None = None,
        mask: Tensor | None = None,
        cache: Cache | None = None,
        *,
        positions: Tensor | None = None,
        segment_ids: Tensor | None = None,
    ) -> Tensor:
        """Compute the attention output, [B, T, D]; causal unless a mask is given.

        Args:
            x: [B, T, D], normalized input of the layer.
            rope: cos and sin of the T positions, [T, d] or [B, T, d], the sin of the first half
                negative (see `models.rotary`); None: computed from ``positions``.
            mask: bool [B or 1, 1, T, S], True = may attend; a fully masked query, such as padding,
                attends to itself.
            cache: `difftransformer.KeyValueCache` or transformers' ``DynamicCache``; keys and
                values of the T positions are appended.
            positions: [T] or [B or 1, T] integers; None: they continue after the cache, or restart
                at 0 in each document.
            segment_ids: [B or 1, T] integers, the document of each position of packed rows:
                attention is causal and stays within a document, as if each were passed alone.
                Excludes ``mask`` and ``cache``.

        Returns:
            [B, T, D].

        Raises:
            ConfigError: ``x``, ``mask``, ``positions`` or ``segment_ids`` has another shape or
                type, ``segment_ids`` are given with ``mask`` or ``cache``, or ``positions`` with
                ``rope`` or in a layer without rotary positions.
            BackendError: The backend cannot run on the device of ``x``, or takes no mask
                (flash_attn).
        """
        self._check_input(x)
        if self._requested_backend != "auto":
            half = x.dtype in _HALF_DTYPES or torch.is_autocast_enabled(x.device.type)
            choose_backend(self._requested_backend, x.device, "bf16" if half else "fp32")
        past = 0 if cache is None else cache.get_seq_length(self.layer_index)
        if segment_ids is not None:
            B, T = x.shape[:2]
            mask = document_mask(segment_ids, (B, T), mask, cache)
            if rope is None and positions is None and self._rotary is not None:
                rope = self._rotary.within(mask)
        elif mask is not None:
            self._check_mask(mask, len(x), x.shape[1], past)
            mask = unmask_unattended(mask)
        if rope is None:
            rope = self._rope(x, past, positions)
        elif positions is not None:
            raise ConfigError(
                f"{type(self).__name__}: rope and positions exclude each other: rope already "
                "encodes the positions; pass one of them"
            )
        return super().forward(x, rope, mask, cache)

    def attention_maps(self, x: Tensor, rope: Rope | None = None) -> Tensor:
        """Return the signed attention weights of each head, [B, H, T, T].

        Causal and quadratic in memory, for analysis; arguments as for `forward`.
        """
        self._check_input(x)
        return attention_maps(self, x, self._rope(x, 0, None) if rope is None else rope)

    def extra_repr(self) -> str:
        """Return a text with the layer's sizes and backend, shown by ``repr``."""
        sizes = f"d_model={self.d_model}, num_heads={self.num_heads}, head_dim={self.head_dim}"
        return f"{sizes}, num_kv_heads={self.num_kv_heads}, backend={self.backend!r}"

    def _rope(self, x: Tensor, past: int, positions: Tensor | None) -> Rope:
        if positions is not None and self._rotary is None:
            raise ConfigError(
                f"{type(self).__name__}: positions have no effect with rope_theta None; leave "
                "them out, or pass rope"
            )
        if self._rotary is None:
            ones = x.new_ones(x.shape[1], self.head_dim, dtype=torch.float32)
            return ones, torch.zeros_like(ones)
        if positions is not None:
            B, T = x.shape[:2]
            shapes = (T,), (1, T), (B, T)
            if positions.is_floating_point() or positions.shape not in shapes:
                raise ConfigError(
                    f"{type(self).__name__}: the positions are {positions.dtype} "
                    f"{[*positions.shape]}, expected integers [{T}] or [{B} or 1, {T}]"
                )
            return self._rotary.at(positions)
        return self._rotary.span(past, x.shape[1], x.device)

    def _check_input(self, x: Tensor) -> None:
        if x.ndim != 3 or x.shape[-1] != self.d_model or not x.numel():
            raise ConfigError(
                f"{type(self).__name__}: the input has shape {[*x.shape]}, expected [batch, "
                f"positions, {self.d_model}]"
            )

    def _check_mask(self, mask: Tensor, batch: int, new: int, past: int) -> None:
        shapes = [(rows, 1, new, past + new) for rows in (1, batch)]
        if mask.dtype != torch.bool or mask.shape not in shapes:
            raise ConfigError(
                f"{type(self).__name__}: the mask is {mask.dtype} {[*mask.shape]}, expected "
                f"torch.bool [batch or 1, 1, {new}, {past + new}], True where a query may attend"
            )

    def _select_backend(self) -> None:
        """Resolve `auto` for the current device; `forward` checks any other backend."""
        if self._requested_backend != "auto":
            return
        weight = self.o_proj.weight
        device = torch.device("cpu") if weight.is_meta else weight.device
        self.backend = choose_backend(self._requested_backend, device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or cast as torch does, then resolve backend `auto` again."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._select_backend()
        return self


def layer_names() -> dict[str, str]:
    """Return the variant names by the class names of their standalone layers, see `layer_class`."""
    return {variant_location(name).partition(":")[2]: name for name in variants()}


@cache
def layer_class(variant: str) -> type[AttentionLayer]:
    """Return the standalone layer class of a variant; imports its file and no other variant's.

    Raises:
        ConfigError: Unknown variant.
    """
    base = attention_class(variant)
    members = {
        "variant": variant,
        "__doc__": base.__doc__,
        "__module__": __name__.partition(".")[0],
    }
    return type(base.__name__, (AttentionLayer, base), members)


def _as_python_number(value: Any) -> Any:
    """Convert a numpy number to a Python number; return other values unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def _head_dim(variant: str, d_model: int, num_heads: int | None, name: str) -> int:
    """Return the head_dim with which ``num_heads`` heads fill ``d_model``."""
    if num_heads is None:
        raise ConfigError(f"{name}: pass num_heads or head_dim")
    if not isinstance(num_heads, int) or num_heads < 1:
        raise ConfigError(f"{name}.num_heads: needs a number of heads, got {num_heads!r}")
    sample = {"variant": variant, "num_heads": 1, "head_dim": 2}
    maps = configure(sample, d_model, location=name).value_dim // 2
    head_dim, remainder = divmod(d_model, num_heads * maps)
    if remainder or head_dim % 2 or not head_dim:
        width = f"of {maps}d " if maps > 1 else ""
        raise ConfigError(
            f"{name}.num_heads: {num_heads} heads {width}do not fill d_model {d_model} with an "
            "even head_dim; take another number, or set head_dim"
        )
    return head_dim
