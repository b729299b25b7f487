"""Attention backends: `choose_backend` picks one, `get_kernel` returns its operations.

| name | runs on | implementation |
|---|---|---|
| `eager` | any device | the equations, with materialized attention maps |
| `sdpa` | any device | PyTorch's fused attention; FlexAttention if a log-sum-exp is needed |
| `blocked` | CPU | blocks of queries, with a custom backward pass |
| `cpu_dispatch` | CPU | `blocked` or `sdpa` for each call, by sequence length |
| `flash_attn` | NVIDIA GPUs, half precision | flash-attn 2, 3 or 4 |
| `fused` | NVIDIA GPUs from capability 8.0, half precision | Triton kernels of this package |

`auto` is `cpu_dispatch` on a CPU and `sdpa` on other devices. The last two are imported only if
they are chosen.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

import torch
from torch import Tensor

from difftransformer.errors import BackendError, nearest
from difftransformer.models.kernels import blocked, cpu_dispatch, eager, sdpa

logger = logging.getLogger(__name__)


class Kernel(Protocol):
    """Interface of an attention backend: its three operations.

    Shapes: B = batch, T = queries, S = keys, H = output heads, G = key/value heads (H a multiple of
    G; output head h uses key/value head h // (H / G)), d = head_dim, e = width of a value. Without
    a mask attention is causal and the last query attends to the last key; with one (bool [B or 1,
    1, T, S], True = may attend) only the mask counts.
    """

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
    ) -> Tensor:
        """Return the attention output softmax(q k' scale) v, [B, T, H, e].

        Shapes: q [B, H, T, d], k [B, G, S, d], v [B, G, S, e].
        """

    def attention_with_lse(
        self, q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the output of `attention` and the log-sum-exp of the logits.

        The log-sum-exp of each query is log(sum(exp(q k' scale))), [B, T, H], in float32. Both are
        differentiable. A term that is added to the softmax's denominator, such as a sink s, is then
        a factor sigmoid(lse - s) of the output.
        """

    def differential_attention(
        self, q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
    ) -> Tensor:
        """Return (softmax(q1 k1' scale) - lam softmax(q2 k2' scale)) v, [B, T, H, e].

        The two queries and keys of a head are adjacent in q [B, 2H, T, d] and k [B, 2G, S, d]; v is
        [B, G, S, e] and lam a scalar.
        """


_LOADED: dict[str, Kernel] = {
    "eager": eager,
    "blocked": blocked,
    "cpu_dispatch": cpu_dispatch,
    "sdpa": sdpa,
}
_GPU_BACKENDS = ("flash_attn", "fused")


def choose_backend(name: str, device: torch.device | str, precision: str = "fp32") -> str:
    """Return the name of the attention backend to run; "auto" selects one and logs the selection.

    Args:
        name: Name of a registered backend, or "auto".
        device: Device on which the model runs.
        precision: "fp32" or "bf16".

    Raises:
        BackendError: The backend is unknown, or cannot run on the device; there is no fallback.
    """
    device_type = torch.device(device).type
    if name == "auto":
        backend = "cpu_dispatch" if device_type == "cpu" else "sdpa"
        logger.info("backend auto: picked %s on %s", backend, device_type)
        return backend
    if reason := unavailable_reason(name, device_type, precision):
        raise BackendError(f"backend {name} cannot run: {reason}")
    return name


def get_kernel(name: str) -> Kernel:
    """Return the module with the operations of a backend.

    Raises:
        BackendError: No backend of that name.
    """
    if name not in _LOADED:
        _LOADED[name] = _load(name)
    return _LOADED[name]


def unavailable_reason(name: str, device: str, precision: str) -> str | None:
    """Return why a backend cannot run on a device type, with an alternative; None if it can.

    Raises:
        BackendError: No backend of that name.
    """
    backend: Any = get_kernel(name)
    if name not in _GPU_BACKENDS:
        return None
    reason: str | None = backend.unavailable_reason(device, precision)
    return reason


def _load(name: str) -> Kernel:
    # Import statements, since the code fingerprint of a job on a GPU follows them.
    if name == "flash_attn":
        from difftransformer.models.kernels import flash

        return flash
    if name == "fused":
        from difftransformer.models.kernels import fused

        return fused
    if name == "auto":
        raise BackendError("backend auto must be resolved first: call choose_backend")
    raise BackendError(
        f"unknown backend {name!r}{nearest(name, [*_LOADED, *_GPU_BACKENDS, 'auto'])}"
    )
