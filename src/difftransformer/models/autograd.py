"""When to use custom backward passes, and helpers for autograd and autocast.

On a CPU the elementwise parts of a small decoder cost as much as its matrix multiplications, and
autograd makes them slower: it saves and re-reads every intermediate result. The custom autograd
Functions of this package touch memory about a third as often. GPUs have fused kernels for the same,
and compilers fuse on their own, so the plain formulas run there.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

_custom_backward_disabled: ContextVar[bool] = ContextVar("custom backward disabled", default=False)


def use_custom_backward(x: Tensor) -> bool:
    """Return whether to use custom backward passes for ``x``: on the CPU, except when compiling."""
    on_cpu = x.device.type == "cpu"
    return on_cpu and not torch.compiler.is_compiling() and not _custom_backward_disabled.get()


@contextmanager
def disable_custom_backward() -> Iterator[None]:
    """Replace custom backward passes by plain torch operations within the context.

    GPUs and compilers use the plain operations anyway; they support double backward.
    """
    token = _custom_backward_disabled.set(True)
    try:
        yield
    finally:
        _custom_backward_disabled.reset(token)


def no_double_backward(backward: Callable[..., T]) -> Callable[..., T]:
    """Make an autograd Function's ``backward`` raise an error if it is to be differentiated again.

    torch's `once_differentiable` returns an output without a derivative. If another path leads to
    the same input, or with allow_unused=True, autograd leaves that output out and the second
    derivative is wrong. The error is therefore raised as soon as a graph of the gradient is
    requested.

    Raises:
        NotImplementedError: In the backward pass, under create_graph=True.
    """

    @wraps(backward)
    def checked(ctx: Any, *grads: Any) -> T:
        if torch.is_grad_enabled():
            raise NotImplementedError(
                f"{backward.__qualname__} is a custom backward pass and has no second derivative: "
                "leave create_graph=True out, or run the model under `disable_custom_backward`"
            )
        return backward(ctx, *grads)

    return checked


def run_in_thread(function: Callable[[], T]) -> T:
    """Run ``function`` in a new thread without the caller's torch modes, and return its result.

    Modes of torch belong to a thread: fake tensors, inference, autocast, hooks of saved tensors.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


def at_least_fp32(x: Tensor) -> Tensor:
    """Return ``x`` converted to float32, or unchanged if its dtype is float32 or wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def no_autocast(x: Tensor) -> torch.autocast:
    """Return a context that disables autocast on the device of ``x``.

    Autocast also applies within custom autograd Functions, and a backward pass may run inside or
    outside of it.
    """
    return torch.autocast(x.device.type, enabled=False)
