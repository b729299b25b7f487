"""Which tiles of the fused kernels compile well for which part; needs no GPU.

Writes `compiled.json` beside the kernels: for each part and kernel the first tiles of `CANDIDATES`
that spill little and fit its shared memory. Run it after a change of the kernels; it takes some
twenty minutes of one core, and finds what it has compiled before in Triton's cache.

    python benchmarks/gpu/compile_tiles.py
"""

import argparse
import json
from collections.abc import Iterator

from difftransformer.models.kernels.fused.compiling import (
    LEAST_SHARED,
    PARTS,
    compiled,
    further_widths,
)
from difftransformer.models.kernels.fused.tiles import COMPILED, Kernel, Tile

_KEYS = [
    *((64, 128, 8, 2), (64, 64, 8, 2), (64, 64, 8, 1), (32, 128, 8, 2), (32, 128, 4, 2)),
    *((32, 64, 8, 2), (32, 64, 4, 2), (32, 128, 8, 1), (32, 64, 8, 1), (32, 64, 4, 1)),
    *((64, 32, 4, 2), (32, 32, 4, 2), (32, 32, 4, 1)),
]
CANDIDATES = {
    "forward": [
        *((128, 128, 8, 2), (128, 64, 8, 3), (128, 64, 8, 2), (128, 64, 4, 3), (128, 32, 8, 3)),
        *((64, 64, 8, 2), (64, 64, 4, 3), (64, 32, 8, 3), (64, 32, 4, 3), (64, 32, 8, 2)),
        (32, 32, 4, 2),
    ],
    "keys": _KEYS,
    "keys_atomic": _KEYS,
    "queries": [
        *((128, 64, 8, 2), (128, 32, 8, 2), (64, 64, 8, 2), (64, 64, 4, 2), (64, 32, 8, 3)),
        *((64, 32, 4, 2), (64, 32, 8, 2), (32, 32, 4, 2)),
    ],
}
"""Queries, keys, warps and stages, in the order in which we would guess that they are fast."""
MANY, FEW = 4, 2
"""Tiles that are kept of widths that models on GPUs have, and of the others."""
SHAPES = {
    (2, 64, 128): MANY,
    (2, 128, 256): MANY,
    (1, 64, 64): MANY,
    (1, 128, 128): MANY,
    (1, 64, 128): FEW,
    (1, 128, 256): FEW,
    (2, 32, 64): FEW,
    (1, 32, 32): FEW,
    (1, 32, 64): FEW,
    (2, 16, 32): FEW,
    (1, 16, 16): FEW,
    (1, 16, 32): FEW,
}
"""Maps of a head and the widths of its keys and values -> how many tiles."""


def kernels() -> Iterator[tuple[Kernel, int]]:
    """Every kernel that is shipped, and how many tiles it is to have; masked ones have one."""
    for shape, count in SHAPES.items():
        for name in CANDIDATES:
            fewer = MANY - 1 if name == "keys_atomic" else count
            yield Kernel(name, *shape), min(count, fewer)
            yield Kernel(name, *shape, masked=True), 1


def chosen(kernel: Kernel, part: str, count: int) -> list[list[int]]:
    """The first tiles that compile well, with their shared memory; one of them fits any card."""
    found: list[list[int]] = []
    for candidate in CANDIDATES[kernel.name]:
        tile = Tile(*candidate)
        result = compiled(kernel, tile, part)
        small = result.shared <= LEAST_SHARED
        wanted = len(found) < count or (small and part == "80")
        if result.fits(part) and wanted and narrower_fits(kernel, tile, part):
            found.append([*tile, result.shared])
        if len(found) >= count and (part != "80" or any(one[-1] <= LEAST_SHARED for one in found)):
            return found
    return found


def narrower_fits(kernel: Kernel, tile: Tile, part: str) -> bool:
    """Whether the widths that share the kernel's blocks compile as well."""
    return all(compiled(kernel, tile, part, widths).fits(part) for widths in further_widths(kernel))


def main() -> None:
    """Compile and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--only", default="", help="kernels whose name begins so, forward/2/64")
    parser.add_argument("--part", choices=PARTS, nargs="+", default=list(PARTS))
    arguments = parser.parse_args()
    table = json.loads(COMPILED.read_text()) if COMPILED.exists() else {}
    for kernel, count in kernels():
        if not str(kernel).startswith(arguments.only):
            continue
        for part in arguments.part:
            table.setdefault(part, {})[str(kernel)] = chosen(kernel, part, count)
            print(part, kernel, table[part][str(kernel)], flush=True)
        lines = json.dumps(table, indent=1)
        COMPILED.write_text(lines + "\n")


if __name__ == "__main__":
    main()
