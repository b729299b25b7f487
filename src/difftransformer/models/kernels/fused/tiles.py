"""Which tile a kernel takes: what was measured on the card, else the first that fits the part.

`compiled.json` has the tiles that we ship, each known to compile for its part, in the order of our
guess; `measured.json` has, by the name of the card, what benchmarks/gpu/tune.py found there. No
time is taken while a model runs. A tile changes the order of sums and no more.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from difftransformer.errors import BackendError

WIDEST_TOGETHER = 64
"""Keys of two maps for which registers hold what both gather, with tiles that fill tensor cores."""
BACKWARD = {
    "together": ("queries", "keys"),
    "apart": ("queries", "of_keys", "of_values"),
    "atomic": ("keys_atomic",),
}
"""Ways of the backward pass, each by its kernels; sums of the last have no fixed order.

Of T x T x d, with values of 2d, they take 14, 16 and 10 products for two maps; the sums of keys and
of values apart leave room for tiles that are twice as large.
"""
WIDEST_HEAD = 128
"""Width of keys that a tile is made for; values may be as wide as their keys or up to twice."""
MEASURED = Path(__file__).with_name("measured.json")
COMPILED = Path(__file__).with_name("compiled.json")


class Tile(NamedTuple):
    """Queries and keys of a tile, and how it is compiled.

    ``ahead``: of how many maps scores are multiplied a tile ahead, by kernels of `BACKWARD`.
    """

    rows: int
    keys: int
    warps: int
    stages: int
    ahead: int = 0

    @property
    def numbers(self) -> list[int]:
        """As tables have it, without ``ahead`` where there is none."""
        return list(self if self.ahead else self[:-1])


class Kernel(NamedTuple):
    """A kernel as it is compiled: its maps, and its widths rounded up to powers of two."""

    name: str
    maps: int
    d: int
    e: int
    masked: bool = False

    @property
    def apart(self) -> bool:
        """Whether two maps are too wide for one program to gather what both do.

        Then each map forward has programs of its own, and `way_for` guesses apart.
        """
        return self.maps == 2 and self.d > WIDEST_TOGETHER

    @property
    def most_ahead(self) -> int:
        """Maps whose scores it can multiply a tile ahead: one product has to be of its own tile."""
        if self.name in ("forward", "keys_atomic"):
            return 0
        return self.maps - (self.name == "of_values")

    def __str__(self) -> str:
        sizes = f"{self.name}/{self.maps}/{self.d}/{self.e}"
        return f"{sizes}/masked" if self.masked else sizes


def kernels_of(maps: int) -> list[str]:
    """Names of the kernels that heads of so many maps have."""
    return ["forward", *dict.fromkeys(name for way in ways_of(maps) for name in BACKWARD[way])]


def ways_of(maps: int) -> list[str]:
    """Ways of the backward pass that heads of so many maps have."""
    return [way for way in BACKWARD if maps == 2 or way != "apart"]


INTERPRETED = Tile(64, 32, 4, 1)
"""What Triton's interpreter takes: small, so that short sequences have several."""


_tried: dict[Kernel, Tile] = {}
_tried_ways: list[str] = []


@contextmanager
def trying(tiles: Mapping[Kernel, Tile], *, way: str | None = None) -> Iterator[None]:
    """Take these tiles, and this way of the backward pass, where something is measured."""
    _tried.update(tiles)
    _tried_ways.extend([] if way is None else [way])
    try:
        yield
    finally:
        for kernel in tiles:
            _tried.pop(kernel)
        _tried_ways.clear()


def kernel_for(
    name: str, maps: int, head_dim: int, value_dim: int, *, masked: bool = False
) -> Kernel:
    """Return what is compiled for a head.

    Args:
        name: "forward", or of `BACKWARD`.
        maps: 2 for a differential head.
        head_dim: Width of queries and keys.
        value_dim: Width of the values.
        masked: Whether a mask says who sees whom.

    Raises:
        BackendError: no tile is made for these widths.
    """
    d = _power(head_dim)
    e = max(_power(value_dim), maps * d)
    if head_dim > WIDEST_HEAD or e not in (d, 2 * d):
        raise BackendError(
            f"backend fused has no kernel for head_dim {head_dim} with values of {value_dim}: it "
            f"takes up to {WIDEST_HEAD}, and values up to twice as wide; use sdpa"
        )
    return Kernel(name, maps, d, e, masked)


def tile_for(kernel: Kernel, device: torch.device) -> Tile:
    """Return the tile that a kernel takes on a device.

    Raises:
        BackendError: none that we ship fits the card.
    """
    if kernel in _tried:
        return _tried[kernel]
    if device.type != "cuda":
        return INTERPRETED
    return _on_card(kernel, torch.cuda.current_device() if device.index is None else device.index)


def way_for(kernel: Kernel, device: torch.device) -> str:
    """The way of `BACKWARD` that was measured to be the fastest on this card, else our guess.

    Where bits are to repeat, atomic sums are not taken. All kernels of a head have the same.
    """
    if _tried_ways:
        return _tried_ways[-1]
    found = "apart" if kernel.apart else "together"
    if device.type == "cuda":
        by_card = measured().get(torch.cuda.get_device_name(device), {})
        best = by_card.get("backward", {}).get(str(kernel._replace(name="backward", masked=False)))
        if best != "atomic" or not torch.are_deterministic_algorithms_enabled():
            found = best or found
    return str(found)


def part_of(capability: tuple[int, int]) -> str:
    """Return the part whose tiles a card of a compute capability takes: 80, 90 or 100.

    Tensor cores of 9.0 and of 10 and 11 have instructions of their own, all others those of 8.0.
    """
    return {9: "90", 10: "100", 11: "100"}.get(capability[0], "80")


def shipped(part: str) -> dict[str, list[list[int]]]:
    """Tiles by kernel, each with the bytes of shared memory that it takes of the part."""
    found: dict[str, list[list[int]]] = _read(COMPILED)[part]
    return found


def ways_shipped(part: str, maps: int, d: int, e: int) -> list[str]:
    """Ways of the backward pass of which each kernel has a tile for a part, masked or not."""
    able = {name for name, tiles in shipped(part).items() if tiles}
    return [
        way
        for way in ways_of(maps)
        if able.issuperset(
            str(Kernel(name, maps, d, e, masked))
            for name in BACKWARD[way]
            for masked in (False, True)
        )
    ]


def measured() -> dict[str, Any]:
    """What was measured, by the name of the card: tiles, and the fastest ways backward."""
    return _read(MEASURED)


@cache
def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@cache
def _on_card(kernel: Kernel, index: int) -> Tile:
    card = torch.cuda.get_device_properties(index)
    found = measured().get(card.name, {}).get("tiles", {}).get(str(kernel))
    if found is not None:
        return Tile(*found)
    most: int = card.shared_memory_per_block_optin  # type: ignore[attr-defined]  # stubs lack it
    for *tile, shared in shipped(part_of((card.major, card.minor))).get(str(kernel), []):
        if shared <= most:
            return Tile(*tile)
    raise BackendError(
        f"backend fused has no tile of {kernel} for {card.name} with {most} bytes of shared memory "
        "a block; use sdpa"
    )


def _power(width: int) -> int:
    """The power of two that holds a width; the tensor cores want 16 at least."""
    return max(16, 1 << (width - 1).bit_length())
