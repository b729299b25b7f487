"""How near is each kernel to what the card can do? Its own time and products a second.

Beside it the speed of one large product: what no kernel is faster than. Of the kernels that a
backward pass has, and of each way, so that it is seen which one to work on.
"""

import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from runs import Answer, Questions, Setting, hold, main, spread
from tune import part_here

LENGTHS = (1024, 4096, 16384)
SHAPES = ((2, 64, 128), (2, 128, 256), (1, 64, 64), (1, 128, 128))
TOKENS, WIDTH, SIZE = 16384, 1024, 8192
"""Tokens, d times the maps of all heads, and the sides of the large product."""


def questions(setting: Setting) -> Questions:
    """One for each number of maps, widths and length."""
    lengths = setting.sized(LENGTHS, (33,))
    shapes = setting.sized(SHAPES, ((2, 16, 32),))
    return {
        f"{maps}/{d}/{e} T {T}": partial(measure, setting, maps, d, e, T)
        for (maps, d, e), T in product(shapes, lengths)
    }


def measure(setting: Setting, maps: int, d: int, e: int, T: int) -> Answer:
    """Each kernel of every way, and the large product, round by round."""
    import torch

    from difftransformer.models.kernels.fused.launch import Call
    from difftransformer.models.kernels.fused.tiles import ways_shipped

    clock = Clock(setting)

    class Watched(Call):
        def _start(self, name: str, *given: Any, **further: bool) -> None:
            clock.time(name, partial(super()._start, name, *given, **further))

    H = setting.sized(WIDTH // (maps * d), 1)
    B = setting.sized(TOKENS, T) // T
    dtype = setting.sized(torch.bfloat16, torch.float16)
    draw = partial(torch.randn, dtype=dtype, device=setting.device)
    q, k = (draw(B, maps * H, T, d) for _ in range(2))
    lam = torch.tensor(0.37, device=setting.device) if maps == 2 else None
    call = Watched(q, k, draw(B, H, T, e), lam, None, d**-0.5)
    left, right = (draw(setting.sized(SIZE, 32), setting.sized(SIZE, 32)) for _ in range(2))
    for number in range(setting.repeats + 1):  # the first compiles
        if setting.device == "cuda":
            hold()
        out, second, lse = call.attend(keep=True)
        grad = draw(*out.shape)
        for way in ways_shipped(part_here(setting), maps, d, e):
            call.differentiate(grad, None, out, second, lse, way=way)
        clock.time("product", partial(torch.mm, left, right))
        if number == 0:
            clock.forget()
    seconds = clock.seconds()
    flops = {name: count * d * B * H * T**2 for name, count in products(maps, e / d).items()}
    flops["product"] = 2 * left.shape[0] ** 3
    tflops = {name: flops[name] / one["median"] / 1e12 for name, one in seconds.items()}
    shares = {name: one / tflops["product"] for name, one in tflops.items()}
    return {"seconds": seconds, "tflops": tflops, "share_of_product": shares, "heads": H}


def products(maps: int, wide: float) -> dict[str, float]:
    """Products of T x T x d by kernel, of which causal heads compute half; values of ``wide`` d."""
    return {
        "forward": maps * (1 + wide),
        "queries": 2 * maps + wide,
        "keys": 2 * maps + 2 * wide,
        "of_keys": 2 * maps + wide,
        "of_values": maps + wide,
        "keys_atomic": 3 * maps + 2 * wide,
    }


class Clock:
    """Times what is begun on a device without waiting for it, by name."""

    def __init__(self, setting: Setting) -> None:
        self._cuda = setting.device == "cuda"
        self._marks: dict[str, list[tuple[Any, Any]]] = {}

    def time(self, name: str, step: Callable[[], object]) -> None:
        """Begin a step, between two marks."""
        before = self._mark()
        step()
        self._marks.setdefault(name, []).append((before, self._mark()))

    def forget(self) -> None:
        """Forget what was timed."""
        self._marks.clear()

    def seconds(self) -> dict[str, dict[str, float]]:
        """Median and quartiles by name, when all is done."""
        import torch

        if self._cuda:
            torch.cuda.synchronize()
        return {
            name: spread([self._between(*pair) for pair in pairs])
            for name, pairs in self._marks.items()
        }

    def _mark(self) -> Any:
        import torch

        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _between(self, before: Any, after: Any) -> float:
        return float(before.elapsed_time(after)) / 1e3 if self._cuda else after - before


if __name__ == "__main__":
    main("kernels", __doc__, questions)
