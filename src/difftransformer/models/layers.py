"""Attention layers to borrow: each registered variant as a module with plain arguments.

``from difftransformer import DifferentialAttention`` is `layer_class` of a registered variant, and
so is the class of every other line of the registry, by its own name. A layer is a subclass of the
variant's class, so its state dict is that of ``layers.<l>.attention`` in a model of this package.

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

_HALF = (torch.bfloat16, torch.float16)


class AttentionLayer(Attention):
    """Causal self-attention of one variant, [B, T, D] -> [B, T, D].

    The constructor draws the parameters, from torch's global generator: matrices from N(0,
    1/inputs). In a deep model divide ``o_proj.weight`` by sqrt(2 num_layers).

    Attributes:
        variant: Name of the variant in the registry.
        config: All settings, with those that were left out.
    """

    variant: ClassVar[str]

    def __init__(  # noqa: PLR0913 - what torch's modules take is among them
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
        """Make the parameters and draw them.

        Args:
            d_model: Width of the residual stream, D.
            num_heads: Output heads H; where a head has two softmax maps, it counts once. None: as
                many of ``head_dim`` as fill D.
            head_dim: Width d of a query and a key of one map, even. None: what ``num_heads``
                leaves of D. V1's heads put out 2d, so they are D / 2d.
            num_kv_heads: Key/value heads G, a divisor of H; None: H.
            layer_index: Index of the layer in its model, counted from 0. It is the layer's slot in
                a cache and the depth in V1's lambda_init, so each layer of a model has its own.
                None: the layer takes no cache, and settings by depth are refused.
            backend: "eager", "blocked", "sdpa", "flash_attn", "fused", or "auto", which picks
                by the device of the weights, now and after `to`.
            rope_theta: Base of the rotary positions; None: without positions, unless `forward`
                is given some.
            device: Where the parameters are made, as in torch's modules.
            dtype: Their floating-point type, as in torch's modules.
            **settings: The variant's own, such as ``lambda_init``; see the class.

        Raises:
            ConfigError: A setting is unknown, of the wrong type, or does not fit the others; or
                ``layer_index`` is missing where the settings depend on it.
            BackendError: There is no such backend.
        """
        d_model, num_heads, head_dim, num_kv_heads = map(
            _as_python_number, (d_model, num_heads, head_dim, num_kv_heads)
        )
        settings = {key: _as_python_number(value) for key, value in settings.items()}
        given = {"num_heads": num_heads, "head_dim": head_dim, "num_kv_heads": num_kv_heads}
        known = {name: value for name, value in given.items() if value is not None}
        name = type(self).__name__
        if "variant" in settings:
            raise ConfigError(f"{name}: is {self.variant} by itself; leave `variant` out")
        if head_dim is None:
            known["head_dim"] = _head_dim(self.variant, d_model, num_heads, name)
        options = {"variant": self.variant, **known, **settings}
        config = configure(options, d_model, location=name)
        self._asked = backend
        first = choose_backend(backend, "cpu") if backend == "auto" else backend
        with nullcontext() if device is None else torch.device(device):
            super().__init__(config, d_model, layer_index, first)  # type: ignore[arg-type]
        self.config: AttentionConfig = config
        self._rotary = None if rope_theta is None else RotaryTable(self.head_dim, rope_theta)
        if dtype is not None:
            self.to(dtype)
        self._settle_backend()
        if not self.o_proj.weight.is_meta:
            self.reset_parameters()

    @property
    def layer_index(self) -> int:
        """Index of the layer in its model.

        Raises:
            ConfigError: The layer was made without.
        """
        if self._layer_index is None:
            raise ConfigError(
                f"{type(self).__name__}.layer_index: missing, and a cache and a lambda_init by "
                "depth need it; give each layer of the model its own, counted from 0"
            )
        return self._layer_index

    @layer_index.setter
    def layer_index(self, index: int | None) -> None:
        if index is not None and (not isinstance(index, Integral) or index < 0):
            raise ConfigError(
                f"{type(self).__name__}.layer_index: wanted a whole number from 0 on, got {index!r}"
            )
        self._layer_index = None if index is None else int(index)

    def reset_parameters(self, seed: int | None = None) -> None:
        """Draw all parameters again, from ``seed`` or else from torch's global generator.

        In float32 on the CPU, so that they are the same, rounded, on each device and in each type.
        """
        seed = int(torch.randint(2**31, (), device="cpu")) if seed is None else seed
        drawn = copy.deepcopy(self).to("cpu", torch.float32)
        init_weights(drawn, seed)
        self.load_state_dict(drawn.state_dict())

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
        """Attend, causally unless there is a mask.

        Args:
            x: [B, T, D], normalized input of the layer.
            rope: cos and sin of the T positions, [T, d] or [B, T, d], the sin of the first half
                negative (see `models.rotary`); None: the layer's own, at ``positions``.
            mask: bool [B or 1, 1, T, S], True = may attend; a query that may look nowhere, as
                padding, looks at itself.
            cache: `difftransformer.KeyValueCache` or transformers' ``DynamicCache``; keys and
                values of the T positions are appended.
            positions: [T] or [B or 1, T] integers; None: on from what the cache holds, or from 0 in
                each document.
            segment_ids: [B or 1, T] integers, the document of each position where several are
                packed in a row: attention is causal and stays within a document, as if each were
                passed alone. Excludes ``mask`` and ``cache``.

        Returns:
            [B, T, D].

        Raises:
            ConfigError: ``x``, ``mask``, ``positions`` or ``segment_ids`` has another shape or
                type, ``segment_ids`` are given with ``mask`` or ``cache``, or ``positions`` with
                ``rope`` or in a layer without rotary positions.
            BackendError: The backend that was named cannot run on the device of ``x``, or takes no
                mask (flash_attn).
        """
        self._check_input(x)
        if self._asked != "auto":
            half = x.dtype in _HALF or torch.is_autocast_enabled(x.device.type)
            choose_backend(self._asked, x.device, "bf16" if half else "fp32")
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
        """Return the weights [B, H, T, T] that each head gives to the values, signed.

        Causal and quadratic in memory, for analysis; arguments as for `forward`.
        """
        self._check_input(x)
        return attention_maps(self, x, self._rope(x, 0, None) if rope is None else rope)

    def extra_repr(self) -> str:
        """Say what the layer is."""
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
                f"{type(self).__name__}: the input has shape {[*x.shape]}, wanted is [batch, "
                f"positions, {self.d_model}]"
            )

    def _check_mask(self, mask: Tensor, batch: int, new: int, past: int) -> None:
        shapes = [(rows, 1, new, past + new) for rows in (1, batch)]
        if mask.dtype != torch.bool or mask.shape not in shapes:
            raise ConfigError(
                f"{type(self).__name__}: the mask is {mask.dtype} {[*mask.shape]}, wanted is "
                f"torch.bool [batch or 1, 1, {new}, {past + new}], True where a query may look"
            )

    def _settle_backend(self) -> None:
        """Let `auto` pick; another backend stands, and `forward` checks that it can run."""
        if self._asked != "auto":
            return
        weight = self.o_proj.weight
        device = torch.device("cpu") if weight.is_meta else weight.device
        self.backend = choose_backend(self._asked, device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or cast as torch does, then let `auto` pick again."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._settle_backend()
        return self


def layer_names() -> dict[str, str]:
    """Return the variant of each class that `layer_class` makes, by the name of the class."""
    return {variant_location(name).partition(":")[2]: name for name in variants()}


@cache
def layer_class(variant: str) -> type[AttentionLayer]:
    """Return the layer of a variant; imports its file and no other variant's.

    Raises:
        ConfigError: no variant of that name.
    """
    base = attention_class(variant)
    members = {
        "variant": variant,
        "__doc__": base.__doc__,
        "__module__": __name__.partition(".")[0],
    }
    return type(base.__name__, (AttentionLayer, base), members)


def _as_python_number(value: Any) -> Any:
    """Return a numpy number as a Python number, other values unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def _head_dim(variant: str, d_model: int, num_heads: int | None, name: str) -> int:
    """Width d at which ``num_heads`` heads fill ``d_model``."""
    if num_heads is None:
        raise ConfigError(f"{name}: give num_heads or head_dim")
    if not isinstance(num_heads, int) or num_heads < 1:
        raise ConfigError(f"{name}.num_heads: wanted a number of heads, got {num_heads!r}")
    sample = {"variant": variant, "num_heads": 1, "head_dim": 2}
    maps = configure(sample, d_model, location=name).value_dim // 2
    width, left = divmod(d_model, num_heads * maps)
    if left or width % 2 or not width:
        each = f"of {maps}d " if maps > 1 else ""
        raise ConfigError(
            f"{name}.num_heads: {num_heads} heads {each}leave no even head_dim in d_model "
            f"{d_model}; take another number, or set head_dim"
        )
    return width
