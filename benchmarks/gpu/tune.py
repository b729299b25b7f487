"""Which tiles are fastest on this card? Times those that are shipped for it, kernel by kernel.

Kernels of the backward pass are timed within all of it.

`python benchmarks/gpu/all.py --adopt` writes the answers to `measured.json` beside the kernels.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from runs import Answer, Questions, Setting, by_itself, main, spread

SHAPES = ((2, 64, 128), (2, 128, 256), (1, 64, 64), (1, 128, 128), (1, 64, 128), (2, 32, 64))
TOKENS, T, HEADS = 16384, 4096, 8
NEAR, ASKED = 2**-6, 3
"""Of what is right, by norm, a few roundings of bfloat16; and how often that is looked at."""


def questions(setting: Setting) -> Questions:
    """One for each number of maps and widths."""
    return {"/".join(map(str, one)): partial(tune, setting, *one) for one in shapes(setting)}


def ahead(setting: Setting) -> Questions:
    """Each kernel by itself: processes compile them beside each other."""
    return {
        f"{name}/{'/'.join(map(str, shape))}": partial(once, setting, name, *shape)
        for shape in shapes(setting)
        for name in calls_of(setting, *shape)
    }


def calls_of(setting: Setting, maps: int, d: int, e: int) -> dict[str, str]:
    """Kernels that have a tile on this card, each with a way of the backward pass that has it."""
    from difftransformer.models.kernels.fused.tiles import BACKWARD, ways_shipped

    ways = ways_shipped(part_here(setting), maps, d, e)
    return {"forward": ""} | {name: way for way in ways for name in BACKWARD[way]}


def kernels() -> list[Any]:
    """Those that a card is asked about."""
    from difftransformer.models.kernels.fused.tiles import Kernel, kernels_of

    return [Kernel(name, *shape) for shape in SHAPES for name in kernels_of(shape[0])]


def shapes(setting: Setting) -> tuple[tuple[int, int, int], ...]:
    """Maps of a head, widths of its keys and of its values."""
    found: tuple[tuple[int, int, int], ...] = setting.sized(SHAPES, ((2, 16, 32),))
    return found


def once(setting: Setting, name: str, maps: int, d: int, e: int) -> Answer:
    """Run each tile of a kernel."""
    from difftransformer.errors import WrongCodeError
    from difftransformer.models.kernels.fused.tiles import Kernel

    kernel, run = Kernel(name, maps, d, e), calls(setting, maps, d, e)[0][name]
    for tile in tiles(setting, kernel):
        with suppress(WrongCodeError):
            _with(run, {kernel: tile})
    return {}


def tune(setting: Setting, maps: int, d: int, e: int) -> Answer:
    """The fastest tile of each kernel, and the times of each way of the backward pass."""
    from difftransformer.models.kernels.fused.tiles import BACKWARD, Kernel, Tile, ways_shipped

    runs, right = calls(setting, maps, d, e)
    best: dict[Kernel, Tile] = {}
    found: Answer = {"tiles": {}, "seconds": {}, "wrong": {}}
    for name, run in runs.items():
        kernel = Kernel(name, maps, d, e)
        shipped = tiles(setting, kernel)
        tried, wrong = sound(run, kernel, shipped, best, right[name])
        found["wrong"] |= {str(kernel): wrong} if wrong else {}
        steps = {str(tile.numbers): partial(_with, run, {**best, kernel: tile}) for tile in tried}
        seconds = {name: spread(values) for name, values in by_itself(steps, setting).items()}
        best[kernel] = min(tried, key=lambda tile: seconds[str(tile.numbers)]["median"])
        found["tiles"][str(kernel)] = best[kernel].numbers
        found["seconds"][str(kernel)] = seconds
    ways = ways_shipped(part_here(setting), maps, d, e)
    taken = {way: partial(_with, runs[BACKWARD[way][-1]], best) for way in ways}
    found["backward"] = {way: spread(values) for way, values in by_itself(taken, setting).items()}
    return found


def sound(
    run: Callable[[], Any],
    kernel: Any,
    tried: Sequence[Any],
    best: Mapping[Any, Any],
    right: Mapping[int, Any],
) -> tuple[list[Any], list[list[int]]]:
    """Tiles that give what the kernel writes as ``right`` has it each time, and the others."""
    from difftransformer.errors import WrongCodeError

    def gives(tile: Any) -> bool:
        try:
            found = _with(run, {**best, kernel: tile})
        except WrongCodeError:
            return False
        return all((found[at] - one).norm() <= NEAR * one.norm() for at, one in right.items())

    able = [tile for tile in tried if all(gives(tile) for _ in range(ASKED))]
    if not able:
        raise RuntimeError(f"{kernel}: no tile gives the numbers of PyTorch's attention")
    return able, [tile.numbers for tile in tried if tile not in able]


def tiles(setting: Setting, kernel: Any) -> list[Any]:
    """Those that are shipped for this card, and that its shared memory holds."""
    import torch

    from difftransformer.models.kernels.fused.tiles import Tile, shipped

    most = math.inf
    if not setting.tiny:
        most = torch.cuda.get_device_properties().shared_memory_per_block_optin
    found = shipped(part_here(setting))[str(kernel)]
    return [Tile(*tile) for *tile, shared in found if shared <= most]


def part_here(setting: Setting) -> str:
    """The part whose tiles this card takes."""
    import torch

    from difftransformer.models.kernels.fused.tiles import part_of

    return "80" if setting.tiny else part_of(torch.cuda.get_device_capability())


def calls(
    setting: Setting, maps: int, d: int, e: int
) -> tuple[dict[str, Callable[[], Any]], dict[str, dict[int, Any]]]:
    """What runs each kernel, those of the backward pass together; and what it is to write.

    The second is PyTorch's, by its place among the results.
    """
    import torch

    from difftransformer.models.kernels import sdpa
    from difftransformer.models.kernels.fused.launch import Call

    length, H = setting.sized((T, HEADS), (33, 1))
    B = setting.sized(TOKENS, length) // length
    dtype = setting.sized(torch.bfloat16, torch.float16)
    draw = partial(torch.randn, dtype=dtype, device=setting.device)
    q, k = (draw(B, maps * H, length, d) for _ in range(2))
    v = draw(B, H, length, e)
    lam = torch.tensor(0.37, device=setting.device) if maps == 2 else None
    call = Call(q, k, v, lam, None, d**-0.5)
    out, second, lse = call.attend(keep=True)
    grad = torch.randn_like(out)
    backward = partial(call.differentiate, grad, None, out, second, lse)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    given: dict[str, Any] = {"scale": d**-0.5, "mask": None}
    if lam is None:
        right = sdpa.attention(*inputs, **given)
    else:
        right = sdpa.differential_attention(*inputs, lam, **given)
    found = {
        name: partial(backward, way=way) for name, way in calls_of(setting, maps, d, e).items()
    }
    found["forward"] = partial(call.attend, keep=True)
    grads = dict(enumerate(torch.autograd.grad(right, inputs, grad)))
    written = {
        "forward": {0: right.detach()},
        "queries": {0: grads[0]},
        "keys": {1: grads[1], 2: grads[2]},
        "of_keys": {1: grads[1]},
        "of_values": {2: grads[2]},
        "keys_atomic": grads,
    }
    return found, written


def _with(run: Callable[[], Any], tiles: Mapping[Any, Any]) -> Any:
    from difftransformer.models.kernels.fused.tiles import trying

    with trying(tiles):
        return run()


if __name__ == "__main__":
    main("tune", __doc__, questions)
