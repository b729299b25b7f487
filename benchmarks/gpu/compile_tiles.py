"""Which tiles of the fused kernels compile well for which part; needs no GPU.

Writes `compiled.json` beside the kernels: for each part and kernel the first tiles of `CANDIDATES`,
and of `AHEAD`, that spill little and fit its shared memory. Run it after a change of the kernels,
which a test asks for by the digest that the table has of them; it takes some forty minutes of one
core, and finds what it has compiled before in Triton's cache.

    python benchmarks/gpu/compile_tiles.py
"""

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import metadata
from typing import Any

import runs

from difftransformer.models.kernels.fused.compiling import (
    LEAST_SHARED,
    PARTS,
    compiled,
    further_widths,
)
from difftransformer.models.kernels.fused.tiles import COMPILED, Kernel, Tile, kernels_of

MADE_OF = "made_of"
"""Key of the table beside the parts."""
_KEYS = [
    *((64, 128, 8, 2), (64, 64, 4, 2), (32, 128, 8, 3), (64, 128, 8, 3), (32, 64, 4, 2)),
    *((32, 128, 8, 2), (64, 64, 4, 3), (32, 64, 4, 3), (16, 128, 8, 3), (16, 64, 4, 2)),
    *((16, 64, 4, 3), (64, 64, 8, 2), (32, 64, 8, 2), (16, 64, 8, 2), (32, 64, 8, 1)),
    *((32, 64, 4, 1), (64, 32, 4, 2), (32, 32, 4, 2), (32, 32, 4, 1)),
]
CANDIDATES = {
    "forward": [
        *((64, 64, 4, 3), (128, 64, 8, 3), (64, 64, 4, 2), (64, 32, 4, 3), (128, 64, 8, 2)),
        *((128, 128, 8, 2), (64, 128, 4, 2), (128, 32, 8, 3), (64, 32, 4, 2), (64, 64, 8, 2)),
        *((64, 32, 8, 3), (64, 32, 8, 2), (32, 32, 4, 2)),
    ],
    "keys": _KEYS,
    "keys_atomic": _KEYS,
    "of_keys": _KEYS,
    "of_values": _KEYS,
    "queries": [
        *((64, 64, 4, 2), (64, 32, 4, 3), (128, 32, 8, 3), (128, 64, 8, 2), (64, 64, 4, 3)),
        *((64, 32, 4, 2), (128, 32, 8, 2), (64, 64, 8, 2), (64, 32, 8, 3), (64, 32, 8, 2)),
        (32, 32, 4, 2),
    ],
}
"""Queries, keys, warps and stages, those first that were the fastest on an H100."""
_KEYS_AHEAD = [
    *((64, 128, 8, 3, 2), (64, 128, 8, 3, 1), (64, 64, 4, 3, 2), (64, 64, 4, 3, 1)),
    *((64, 64, 4, 2, 1), (32, 128, 8, 3, 2), (32, 128, 8, 3, 1), (32, 64, 4, 3, 1)),
    *((32, 64, 4, 2, 2), (64, 128, 8, 2, 1), (32, 128, 8, 2, 1), (32, 64, 4, 2, 1)),
    *((16, 128, 8, 3, 2), (16, 128, 8, 2, 2), (16, 128, 8, 2, 1), (16, 64, 4, 3, 2)),
]
AHEAD = {
    "keys": _KEYS_AHEAD,
    "of_keys": _KEYS_AHEAD,
    "of_values": _KEYS_AHEAD,
    "queries": [
        *((128, 64, 8, 3, 2), (128, 64, 8, 3, 1), (128, 64, 8, 2, 2), (64, 64, 4, 3, 1)),
        *((64, 64, 4, 2, 2), (64, 64, 4, 2, 1), (64, 32, 4, 2, 2), (128, 32, 8, 3, 2)),
        *((64, 32, 4, 3, 2), (128, 32, 8, 3, 1), (128, 32, 8, 2, 1), (64, 32, 4, 3, 1)),
    ],
}
"""Tiles of 9.0 whose scores are multiplied ahead. They come behind all others: none was timed."""
MANY, FEW = {"80": 3, "90": 5, "100": 3}, {"80": 1, "90": 2, "100": 1}
"""Tiles that are kept of widths that models on GPUs have, and of the others, by part."""
FEWER = {"keys_atomic": 4}
"""At most, by kernel: atomic sums were the slowest wherever they were measured."""
ALSO_AHEAD = {5: 4, 2: 1}
"""Of so many tiles for 9.0 so many more, whose scores are ahead."""
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


def kernels(part: str) -> Iterator[tuple[Kernel, int]]:
    """Every kernel that is shipped, and how many tiles it is to have; masked ones have one."""
    for shape, count in SHAPES.items():
        for name in kernels_of(shape[0]):
            yield Kernel(name, *shape), min(count[part], FEWER.get(name, count[part]))
            yield Kernel(name, *shape, masked=True), 1


def chosen(
    kernel: Kernel, part: str, count: int, first: Sequence[Sequence[int]] = ()
) -> list[list[int]]:
    """The first tiles that compile well, with their shared memory; one of them fits any card."""
    known = [Tile(*tile) for *tile, _ in first]
    tiles = [*known, *_tiles(CANDIDATES, kernel)]
    found = fitting(kernel, part, [tile for tile in tiles if not tile.ahead], count)
    if part == "90" and not kernel.masked:
        tiles = [tile for tile in (*known, *_tiles(AHEAD, kernel)) if tile.ahead]
        able = [tile for tile in tiles if tile.ahead <= kernel.most_ahead]
        found += fitting(kernel, part, able, ALSO_AHEAD.get(count, 0))
    return found


def fitting(kernel: Kernel, part: str, tiles: Sequence[Tile], count: int) -> list[list[int]]:
    """So many of the tiles, with their shared memory, and of 8.0 one for cards that have little."""
    found: list[list[int]] = []
    for tile in dict.fromkeys(tiles):
        enough = part != "80" or any(one[-1] <= LEAST_SHARED for one in found)
        if len(found) >= count and enough:
            break
        result = compiled(kernel, tile, part)
        wanted = len(found) < count or (result.shared <= LEAST_SHARED and part == "80")
        if result.fits(part) and wanted and narrower_fits(kernel, tile, part):
            found.append([*tile.numbers, result.shared])
    return found


def _tiles(table: Mapping[str, Sequence[tuple[int, ...]]], kernel: Kernel) -> list[Tile]:
    return [Tile(*tile) for tile in table.get(kernel.name, [])]


def narrower_fits(kernel: Kernel, tile: Tile, part: str) -> bool:
    """Whether the widths that share the kernel's blocks compile as well."""
    return all(compiled(kernel, tile, part, widths).fits(part) for widths in further_widths(kernel))


def main() -> None:
    """Compile and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--only", default="", help="kernels whose name begins so, forward/2/64")
    parser.add_argument("--part", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--keep", action="store_true", help="try first what is in the table")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    table = json.loads(COMPILED.read_text()) if COMPILED.exists() else {}
    tasks = [
        (part, kernel, count)
        for part in arguments.part
        for kernel, count in kernels(part)
        if str(kernel).startswith(arguments.only)
    ]

    def kept(part: str, kernel: Kernel) -> list[list[int]]:
        return table.get(part, {}).get(str(kernel), []) if arguments.keep else []

    with ProcessPoolExecutor(arguments.processes) as pool:
        futures = {
            pool.submit(chosen, kernel, part, count, kept(part, kernel)): (part, kernel)
            for part, kernel, count in tasks
        }
        for number, done in enumerate(as_completed(futures), start=1):
            part, name = futures[done][0], str(futures[done][1])
            table.setdefault(part, {})[name] = done.result()
            print(f"{number} of {len(futures)}", part, name, table[part][name], flush=True)
            write(table)
    if not arguments.only and arguments.part == list(PARTS):
        write(table | {MADE_OF: made_of()})


def made_of() -> dict[str, str]:
    """What the tiles were compiled from, and by what."""
    return {"kernels": runs.kernels_digest(), "triton": metadata.version("triton")}


def write(table: dict[str, Any]) -> None:
    """Write what is shipped, in its order, without what is no longer."""
    ordered = {MADE_OF: table[MADE_OF]} if MADE_OF in table else {}
    for part in (part for part in PARTS if part in table):
        names = (str(kernel) for kernel, _ in kernels(part))
        ordered[part] = {name: table[part][name] for name in names if name in table[part]}
    one_line_each = json.dumps(ordered).replace(']], "', ']],\n "').replace('}, "', '},\n"')
    COMPILED.write_text(one_line_each + "\n")


if __name__ == "__main__":
    main()
