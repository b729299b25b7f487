"""Attention alone: how far a differential head is from a plain one, and who is fastest.

Forward and backward, and forward alone, of 16K tokens at 1K to 64K positions, d of 64 and 128. The
plain rows are those of a Transformer of the same size: twice the heads, values of d. What no
backend is has questions of its own, `others`, beside the fused kernel.

The answers of 2026-11-26, named `T ...`, had a gradient of one value everywhere, and split heads by
cuDNN, beside which the card was lost three times. Seconds are the card's own; beside them, as
`called`, what a caller waits for who calls one by one: until 2026-11-27 that was all there was.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from runs import Answer, Questions, Setting, by_itself, compared, lost, main, named, timed

LENGTHS = (1024, 4096, 8192, 16384, 65536)
HEAD_DIMS = (64, 128)
HEADS, TOKENS = 8, 16384
LONGEST_CALLED = 16384
"""Positions; behind them a caller is ahead of the card."""
BASE = "plain fused"
"""A plain kernel of the same structure.

The limit is 16/14 of it with atomic sums, 20/18 without, 22/18 with sums apart.
"""


def questions(setting: Setting) -> Questions:
    """One for each length, width and pass."""
    lengths = setting.sized(LENGTHS, (33,))
    widths = setting.sized(HEAD_DIMS, (16,))
    asked = product(lengths, widths, ("training", "forward"), (False, True))
    return {
        f"keys {T} d {d} {mode}{' others' * others}": partial(measure, setting, T, d, mode, others)
        for T, d, mode, others in asked
    }


def measure(setting: Setting, T: int, d: int, mode: str, others: bool) -> Answer:
    """Everything that can run here takes turns."""
    import torch

    H = setting.sized(HEADS, 1)
    B = max(1, setting.sized(TOKENS, T) // T)
    dtype = setting.sized(torch.bfloat16, torch.float16)
    draw = partial(_draw, dtype=dtype, device=setting.device, graded=mode == "training")
    pair = [draw(B, 2 * H, T, d), draw(B, 2 * H, T, d), draw(B, H, T, 2 * d)]
    lam = torch.tensor(0.37, device=setting.device, requires_grad=mode == "training")
    plain = [draw(B, 2 * H, T, d) for _ in range(3)]
    calls = {
        **{name: (call, [*pair, lam]) for name, call in differential(setting, d, others).items()},
        **{name: (call, plain) for name, call in single(setting, d, others).items()},
    }
    gradient = torch.randn(B, T, 2 * H * d, dtype=dtype, device=setting.device)
    steps = {name: step(call, given, gradient, mode) for name, (call, given) in calls.items()}
    left_out = {
        name: why for name, one in steps.items() if (why := unavailable_reason(name, one, setting))
    }
    able = {name: one for name, one in steps.items() if name not in left_out}
    base = "fused" if others else BASE
    found = compared(by_itself(able, setting), base)
    if T <= LONGEST_CALLED:
        found["called"] = compared(timed(able, setting), base)
    return found | {"left_out": left_out, "batch": B, "heads": H}


def differential(setting: Setting, d: int, others: bool) -> dict[str, Callable[..., Any]]:
    """Ways to compute a differential head: those of a backend, or the others beside `fused`."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from difftransformer.models.kernels import flash, flex, fused, sdpa
    from difftransformer.models.kernels.fused.tiles import trying

    given: dict[str, Any] = {"scale": d**-0.5, "mask": None}
    found: dict[str, Callable[..., Any]] = {"fused": partial(fused.differential_attention, **given)}
    if not others:
        found["padded (sdpa)"] = partial(sdpa.differential_attention, **given)
        if setting.device == "cuda" and flash.generation() is not None:
            found["flash_attn"] = partial(flash.differential_attention, **given)
        return found

    def atomic(*inputs: Any) -> Any:
        return fused.differential_attention(*inputs, **given)

    atomic.within = lambda: trying({}, way="atomic")  # type: ignore[attr-defined]

    def split(q: Any, k: Any, v: Any, lam: Any) -> Any:
        """As the authors' code for a flash kernel: each map by each half of the values."""
        maps = [
            [sdpa.attention(q[:, i::2], k[:, i::2], half, **given) for half in v.chunk(2, dim=-1)]
            for i in (0, 1)
        ]
        return _difference([_joined(halves) for halves in maps], lam)

    split.within = partial(sdpa_kernel, SDPBackend.FLASH_ATTENTION)  # type: ignore[attr-defined]

    def twice(q: Any, k: Any, v: Any, lam: Any) -> Any:
        maps = [flex.attention_with_lse(q[:, i::2], k[:, i::2], v, **given)[0] for i in (0, 1)]
        return _difference(maps, lam)

    def wide(q: Any, k: Any, v: Any, lam: Any) -> Any:
        """Values twice as wide as keys, which cuDNN may have kernels for."""
        pairs = [(q[:, i::2].contiguous(), k[:, i::2].contiguous()) for i in (0, 1)]
        return _difference([sdpa.attention(*pair, v, **given) for pair in pairs], lam)

    wide.within = partial(sdpa_kernel, SDPBackend.CUDNN_ATTENTION)  # type: ignore[attr-defined]
    found |= {"fused atomic": atomic, "split (flash)": split}
    if setting.device == "cuda":
        found |= {"flex, two calls": twice, "wide (cudnn), two calls": wide}
    return found


def single(setting: Setting, d: int, others: bool) -> dict[str, Callable[..., Any]]:
    """Ways to compute the plain heads of a Transformer, with their log-sum-exp and without."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from difftransformer.models.kernels import flash, fused, sdpa

    given: dict[str, Any] = {"scale": d**-0.5, "mask": None}
    found: dict[str, Callable[..., Any]] = {}
    if not others:
        for name, backend in (("fused", fused), ("sdpa", sdpa)):
            found[f"plain {name}"] = partial(backend.attention, **given)
            found[f"lse {name}"] = partial(_first, backend.attention_with_lse, **given)
        if setting.device == "cuda" and flash.generation() is not None:
            found["plain flash_attn"] = partial(flash.attention, **given)
        return found
    kinds = {
        "plain cudnn": SDPBackend.CUDNN_ATTENTION,
        "plain sdpa flash": SDPBackend.FLASH_ATTENTION,
    }
    for name, kind in kinds.items() if setting.device == "cuda" else ():

        def by(*inputs: Any) -> Any:
            return sdpa.attention(*inputs, **given)

        by.within = partial(sdpa_kernel, kind)  # type: ignore[attr-defined]
        found[name] = by
    return found


def step(
    call: Callable[..., Any], given: list[Any], gradient: Any, mode: str
) -> Callable[[], None]:
    """Forward, and backward where that is asked, under the call's own choice of kernels."""
    from contextlib import nullcontext

    import torch

    within = getattr(call, "within", nullcontext)

    def run() -> None:
        with within():
            out = call(*given)
            if mode == "training":
                torch.autograd.grad(out, given, gradient.view_as(out))

    return run


def unavailable_reason(name: str, one: Callable[[], None], setting: Setting) -> str | None:
    """Why it cannot run here: cuDNN, for one, has no kernel for some widths."""
    import torch

    from difftransformer.errors import BackendError

    try:
        named(name, one, setting)()
    except (BackendError, RuntimeError, AssertionError, NotImplementedError) as error:
        if lost(setting):
            raise
        said = "out of memory" if isinstance(error, torch.OutOfMemoryError) else str(error)
        return said.split("\n", maxsplit=1)[0][:150]
    return None


def _draw(*size: int, dtype: Any, device: str, graded: bool) -> Any:
    import torch

    return torch.randn(size, dtype=dtype, device=device).requires_grad_(graded)


def _first(call: Callable[..., Any], *given: Any, **more: Any) -> Any:
    return call(*given, **more)[0]


def _difference(maps: list[Any], lam: Any) -> Any:
    return maps[0] - lam.to(maps[0].dtype) * maps[1]


def _joined(halves: list[Any]) -> Any:
    import torch

    return torch.cat(halves, dim=-1)


if __name__ == "__main__":
    main("attention", __doc__, questions)
