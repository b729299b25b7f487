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

WIDEST_HEAD, WIDEST_VALUE = 128, 256
"""Widths that a tile is made for; a value may be as wide as its keys or up to twice as wide."""
MEASURED = Path(__file__).with_name("measured.json")
COMPILED = Path(__file__).with_name("compiled.json")


class Tile(NamedTuple):
    """Queries and keys of a tile, and how it is compiled."""

    rows: int
    keys: int
    warps: int
    stages: int


class Kernel(NamedTuple):
    """A kernel as it is compiled: its maps, and its widths rounded up to powers of two."""

    name: str
    maps: int
    d: int
    e: int
    masked: bool = False

    def __str__(self) -> str:
        sizes = f"{self.name}/{self.maps}/{self.d}/{self.e}"
        return f"{sizes}/masked" if self.masked else sizes


INTERPRETED = Tile(64, 32, 4, 1)
"""What Triton's interpreter takes: small, so that short sequences have several."""


_tried: dict[Kernel, Tile] = {}
_tried_atomic: list[bool] = []


@contextmanager
def trying(tiles: Mapping[Kernel, Tile], *, atomic: bool | None = None) -> Iterator[None]:
    """Take these tiles, and this backward pass, where something is measured."""
    _tried.update(tiles)
    _tried_atomic.extend([] if atomic is None else [atomic])
    try:
        yield
    finally:
        for kernel in tiles:
            _tried.pop(kernel)
        _tried_atomic.clear()


def kernel_for(
    name: str, maps: int, head_dim: int, value_dim: int, *, masked: bool = False
) -> Kernel:
    """Return what is compiled for a head.

    Args:
        name: "forward", "keys", "keys_atomic" or "queries".
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
            f"takes up to {WIDEST_HEAD}, and values up to twice as wide; take sdpa"
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


def sums_atomically(kernel: Kernel, device: torch.device) -> bool:
    """Whether the backward pass in one kernel was measured to be the faster one on this card.

    Its sums have no fixed order: where bits are to repeat, it is not taken.
    """
    if _tried_atomic:
        return _tried_atomic[-1]
    if device.type != "cuda" or torch.are_deterministic_algorithms_enabled():
        return False
    by_card = measured().get(torch.cuda.get_device_name(device), {})
    return bool(by_card.get("atomic", {}).get(str(kernel), False))


def part_of(capability: tuple[int, int]) -> str:
    """Return the part whose tiles a card of a compute capability takes: 80, 90 or 100.

    Tensor cores of 9.0 and of 10 and 11 have instructions of their own, all others those of 8.0.
    """
    return {9: "90", 10: "100", 11: "100"}.get(capability[0], "80")


def shipped(part: str) -> dict[str, list[list[int]]]:
    """Tiles by kernel, each with the bytes of shared memory that it takes of the part."""
    found: dict[str, list[list[int]]] = _read(COMPILED)[part]
    return found


def measured() -> dict[str, Any]:
    """What was measured, by the name of the card: tiles, and which backward pass is faster."""
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
        "a block; take sdpa"
    )


def _power(width: int) -> int:
    """The power of two that holds a width; the tensor cores want 16 at least."""
    return max(16, 1 << (width - 1).bit_length())
