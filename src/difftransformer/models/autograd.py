"""When to differentiate by hand.

On a CPU the elementwise parts of a small decoder cost as much as its matrix products, and autograd
makes them worse: it keeps and re-reads every intermediate result. The functions of this package
with hand-written gradients touch memory about a third as often. GPUs have fused kernels for the
same, and compilers fuse on their own, so there the plain formulas run.
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

_plain: ContextVar[bool] = ContextVar("plain formulas", default=False)


def use_custom_backward(x: Tensor) -> bool:
    """Whether to take the hand-written gradient for ``x``: on the CPU, outside of compilation."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and not _plain.get()


@contextmanager
def disable_custom_backward() -> Iterator[None]:
    """Run the formulas that compilers and GPUs get, which can be differentiated again."""
    before = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(before)


def no_double_backward(backward: Callable[..., T]) -> Callable[..., T]:
    """Mark the ``backward`` of an autograd Function as one that cannot be differentiated again.

    torch's `once_differentiable` tells autograd of an output that has no derivative; where another
    path leads to the same input, or with allow_unused=True, autograd leaves that output out and the
    second derivative is wrong. So a graph of the gradient is refused as soon as it is asked for.

    Raises:
        NotImplementedError: at the backward pass, under create_graph=True.
    """

    @wraps(backward)
    def storage_errors(ctx: Any, *grads: Any) -> T:
        if torch.is_grad_enabled():
            raise NotImplementedError(
                f"{backward.__qualname__} is written by hand and has no second derivative: "
                "leave create_graph=True out, or run the model under `disable_custom_backward`"
            )
        return backward(ctx, *grads)

    return storage_errors


def run_in_thread(work: Callable[[], T]) -> T:
    """Return what ``work`` returns in a thread of its own, where no mode of the caller holds.

    Modes of torch belong to a thread: fake tensors, inference, autocast, hooks of saved tensors.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def at_least_fp32(x: Tensor) -> Tensor:
    """Return ``x`` in float32, or as it is where it is float32 or wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def no_autocast(x: Tensor) -> torch.autocast:
    """Return a context in which products of float32 stay float32, whatever the caller runs under.

    Autocast reaches into hand-written functions, and a backward pass may run inside of it or not.
    """
    return torch.autocast(x.device.type, enabled=False)
