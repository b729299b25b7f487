"""Attention alone: how far a differential head is from a plain one, and who is fastest.

Forward and backward, and forward alone, of 16K tokens at 1K to 64K positions, d of 64 and 128. The
plain rows are those of a Transformer of the same size: twice the heads, values of d.

The answers of 2026-11-26, named `T ...`, had a gradient of one value everywhere, no wide values,
and split heads by cuDNN, whose gradients of such views ended in illegal accesses now and then.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from runs import Answer, Questions, Setting, compared, main, timed

LENGTHS = (1024, 4096, 8192, 16384, 65536)
HEAD_DIMS = (64, 128)
HEADS, TOKENS = 8, 16384
BASE = "plain fused"
"""A plain kernel of the same structure: the limit is 16/14 of it, 20/18 without atomic sums."""


def questions(setting: Setting) -> Questions:
    """One for each length, width and pass."""
    lengths = setting.sized(LENGTHS, (33,))
    widths = setting.sized(HEAD_DIMS, (16,))
    return {
        f"keys {T} d {d} {mode}": partial(measure, setting, T, d, mode)
        for T, d, mode in product(lengths, widths, ("training", "forward"))
    }


def measure(setting: Setting, T: int, d: int, mode: str) -> Answer:
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
        **{name: (call, [*pair, lam]) for name, call in differential(setting, d).items()},
        **{name: (call, plain) for name, call in single(setting, d).items()},
    }
    gradient = torch.randn(B, T, 2 * H * d, dtype=dtype, device=setting.device)
    steps = {name: step(call, given, gradient, mode) for name, (call, given) in calls.items()}
    able = {name: one for name, one in steps.items() if runs(name, one, setting)}
    found = compared(timed(able, setting), BASE)
    return found | {"left_out": sorted(set(steps) - set(able)), "batch": B, "heads": H}


def differential(setting: Setting, d: int) -> dict[str, Callable[..., Any]]:
    """Ways to compute a differential head."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from difftransformer.models.kernels import flash, flex, fused, sdpa
    from difftransformer.models.kernels.fused.tiles import trying

    given: dict[str, Any] = {"scale": d**-0.5, "mask": None}

    def atomic(*inputs: Any) -> Any:
        return fused.differential_attention(*inputs, **given)

    atomic.within = lambda: trying({}, atomic=True)  # type: ignore[attr-defined]

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
        """Values twice as wide as keys, which cuDNN has kernels for up to 128."""
        pairs = [(q[:, i::2].contiguous(), k[:, i::2].contiguous()) for i in (0, 1)]
        return _difference([sdpa.attention(*pair, v, **given) for pair in pairs], lam)

    wide.within = partial(sdpa_kernel, SDPBackend.CUDNN_ATTENTION)  # type: ignore[attr-defined]

    found: dict[str, Callable[..., Any]] = {
        "fused": partial(fused.differential_attention, **given),
        "fused atomic": atomic,
        "padded (sdpa)": partial(sdpa.differential_attention, **given),
        "split (flash)": split,
    }
    if setting.device == "cuda":
        found["flex, two calls"] = twice
        found["wide (cudnn), two calls"] = wide
        if flash.generation() is not None:
            found["flash_attn"] = partial(flash.differential_attention, **given)
    return found


def single(setting: Setting, d: int) -> dict[str, Callable[..., Any]]:
    """Ways to compute the plain heads of a Transformer."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from difftransformer.models.kernels import flash, fused, sdpa

    given: dict[str, Any] = {"scale": d**-0.5, "mask": None}
    found: dict[str, Callable[..., Any]] = {BASE: partial(fused.attention, **given)}
    kinds = {
        "plain cudnn": SDPBackend.CUDNN_ATTENTION,
        "plain sdpa flash": SDPBackend.FLASH_ATTENTION,
    }
    for name, kind in kinds.items() if setting.device == "cuda" else ():

        def by(*inputs: Any) -> Any:
            return sdpa.attention(*inputs, **given)

        by.within = partial(sdpa_kernel, kind)  # type: ignore[attr-defined]
        found[name] = by
    found["plain sdpa"] = partial(sdpa.attention, **given)
    if setting.device == "cuda" and flash.generation() is not None:
        found["plain flash_attn"] = partial(flash.attention, **given)
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


def runs(name: str, one: Callable[[], None], setting: Setting) -> bool:
    """Whether it can run here; cuDNN, for one, has no kernel for some widths."""
    import torch

    from difftransformer.errors import BackendError

    try:
        one()
        if setting.device == "cuda":
            torch.cuda.synchronize()
    except torch.OutOfMemoryError:
        return False
    except torch.AcceleratorError as error:
        raise RuntimeError(f"{name}: {error}") from error
    except (BackendError, RuntimeError, AssertionError, NotImplementedError) as error:
        print(f"left out {name}:", str(error).split("\n", maxsplit=1)[0][:150])
        return False
    return True


def _draw(*size: int, dtype: Any, device: str, graded: bool) -> Any:
    import torch

    return torch.randn(size, dtype=dtype, device=device).requires_grad_(graded)


def _difference(maps: list[Any], lam: Any) -> Any:
    return maps[0] - lam.to(maps[0].dtype) * maps[1]


def _joined(halves: list[Any]) -> Any:
    import torch

    return torch.cat(halves, dim=-1)


if __name__ == "__main__":
    main("attention", __doc__, questions)
