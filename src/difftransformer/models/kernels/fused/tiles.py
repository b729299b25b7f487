"""Tile selection (autotuned offline): the tile measured on this GPU, else the first that fits it.

`compiled.json` has the shipped tiles, each known to compile for its architecture, best guess first.
`measured.json` has the results of benchmarks/gpu/tune.py by GPU name. Nothing is timed while a
model runs. The tile only changes the order of sums.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from difftransformer.errors import BackendError

MAX_SHARED_HEAD_DIM = 64
"""Largest key width at which registers hold the accumulators of both maps of a head."""
BACKWARD = {
    "together": ("queries", "keys"),
    "apart": ("queries", "of_keys", "of_values"),
    "atomic": ("keys_atomic",),
}
"""Kernels of each variant of the backward pass; the sums of "atomic" have no fixed order.

With values of width 2d and two maps, the variants need 14, 16 and 10 multiplications of T x T x d.
"apart" leaves registers for tiles that are twice as large.
"""
MAX_HEAD_DIM = 128
"""Largest key width that tiles exist for; values may be up to twice as wide."""
MEASURED = Path(__file__).with_name("measured.json")
COMPILED = Path(__file__).with_name("compiled.json")


class Tile(NamedTuple):
    """The numbers of queries and keys in a tile, and its compile options.

    ``ahead``: number of maps whose scores the kernels of `BACKWARD` compute one tile ahead.
    """

    rows: int
    keys: int
    warps: int
    stages: int
    ahead: int = 0

    @property
    def numbers(self) -> list[int]:
        """Numbers of the tile as in the JSON files, without ``ahead`` if it is 0."""
        return list(self if self.ahead else self[:-1])


class Kernel(NamedTuple):
    """Key of a compiled kernel: its number of maps, and its widths rounded up to powers of two."""

    name: str
    maps: int
    d: int
    e: int
    masked: bool = False

    @property
    def split_maps(self) -> bool:
        """Whether two maps are too wide for the registers (accumulators) of one program.

        If so, each map has its own programs in the forward pass, and `way_for` defaults to "apart".
        """
        return self.maps == 2 and self.d > MAX_SHARED_HEAD_DIM

    @property
    def most_ahead(self) -> int:
        """Largest number of maps whose scores the kernel can compute one tile ahead of use."""
        if self.name in ("forward", "keys_atomic"):
            return 0
        return self.maps - (self.name == "of_values")

    def __str__(self) -> str:
        sizes = f"{self.name}/{self.maps}/{self.d}/{self.e}"
        return f"{sizes}/masked" if self.masked else sizes


def kernels_of(maps: int) -> list[str]:
    """Return the names of the kernels for heads with this number of maps."""
    return ["forward", *dict.fromkeys(name for way in ways_of(maps) for name in BACKWARD[way])]


def ways_of(maps: int) -> list[str]:
    """Return the names of the backward variants for heads with this number of maps."""
    return [way for way in BACKWARD if maps == 2 or way != "apart"]


INTERPRETED = Tile(64, 32, 4, 1)
"""Tile in Triton's interpreter; it is small, so that short sequences have several tiles."""


_tried: dict[Kernel, Tile] = {}
_tried_ways: list[str] = []


@contextmanager
def trying(tiles: Mapping[Kernel, Tile], *, way: str | None = None) -> Iterator[None]:
    """Override the tiles and the backward variant within the context, to tune them."""
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
    """Return the kernel for heads of these widths.

    Args:
        name: "forward", or the name of a kernel in `BACKWARD`.
        maps: Number of maps per head, 2 for differential heads.
        head_dim: Width of queries and keys.
        value_dim: Width of the values.
        masked: Whether there is an explicit mask.

    Raises:
        BackendError: There is no kernel for these widths.
    """
    d = _power(head_dim)
    e = max(_power(value_dim), maps * d)
    if head_dim > MAX_HEAD_DIM or e not in (d, 2 * d):
        raise BackendError(
            f"backend fused has no kernel for head_dim {head_dim} with values of {value_dim}: it "
            f"takes up to {MAX_HEAD_DIM}, and values up to twice as wide; use sdpa"
        )
    return Kernel(name, maps, d, e, masked)


def tile_for(kernel: Kernel, device: torch.device) -> Tile:
    """Return the tile of a kernel on a device.

    Raises:
        BackendError: No shipped tile fits the GPU.
    """
    if kernel in _tried:
        return _tried[kernel]
    if device.type != "cuda":
        return INTERPRETED
    return _tile_on_gpu(
        kernel, torch.cuda.current_device() if device.index is None else device.index
    )


def way_for(kernel: Kernel, device: torch.device) -> str:
    """Return the backward variant that was measured to be fastest on this GPU, else a default.

    It is a key of `BACKWARD`. "atomic" is not returned if torch's deterministic algorithms are
    enabled.
    """
    if _tried_ways:
        return _tried_ways[-1]
    mode = "apart" if kernel.split_maps else "together"
    if device.type == "cuda":
        by_gpu = measured().get(torch.cuda.get_device_name(device), {})
        best = by_gpu.get("backward", {}).get(str(kernel._replace(name="backward", masked=False)))
        if best != "atomic" or not torch.are_deterministic_algorithms_enabled():
            mode = best or mode
    return str(mode)


def part_of(capability: tuple[int, int]) -> str:
    """Return the architecture whose tiles a GPU of this compute capability uses: 80, 90 or 100.

    Tensor cores of 9.0, and of 10 and 11, have instructions of their own. All others use those of
    8.0.
    """
    return {9: "90", 10: "100", 11: "100"}.get(capability[0], "80")


def shipped(part: str) -> dict[str, list[list[int]]]:
    """Return the shipped tiles of an architecture by kernel, with bytes of shared memory."""
    tiles: dict[str, list[list[int]]] = _read(COMPILED)[part]
    return tiles


def ways_shipped(part: str, maps: int, d: int, e: int) -> list[str]:
    """Return the names of the backward variants whose kernels have tiles for an architecture."""
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
    """Return the measured tiles and the fastest backward variants by GPU name."""
    return _read(MEASURED)


@cache
def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


@cache
def _tile_on_gpu(kernel: Kernel, index: int) -> Tile:
    gpu = torch.cuda.get_device_properties(index)
    measured_tile = measured().get(gpu.name, {}).get("tiles", {}).get(str(kernel))
    if measured_tile is not None:
        return Tile(*measured_tile)
    max_shared: int = gpu.shared_memory_per_block_optin  # type: ignore[attr-defined]  # stubs lack it
    for *tile, shared in shipped(part_of((gpu.major, gpu.minor))).get(str(kernel), []):
        if shared <= max_shared:
            return Tile(*tile)
    raise BackendError(
        f"backend fused has no tile of {kernel} for {gpu.name} with {max_shared} bytes of shared "
        "memory per block; use sdpa"
    )


def _power(width: int) -> int:
    """Return the power of two that holds a width, at least 16 for tensor cores."""
    return max(16, 1 << (width - 1).bit_length())
