"""What a fused kernel does in its loops, read from its code; needs no GPU.

For whoever asks why a kernel is slow before a card is at hand: of each loop that multiplies, the
last without a mask, how many instructions there are of each kind, spills among them. Products of
9.0 that wait for each other and fetches of single numbers are what made kernels slow so far.

    python benchmarks/gpu/read_code.py keys/2/64/128 32 128 8 3
    python benchmarks/gpu/read_code.py keys/2/64/128 32 128 8 3 2    # scores of two maps ahead
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator

from difftransformer.models.kernels.fused.compiling import PARTS, by_tool, code, compiled
from difftransformer.models.kernels.fused.tiles import Kernel, Tile, kernels_of

KINDS = {
    "products": r"[A-Z]*MMA",
    "exponentials": r"MUFU",
    "arithmetic": r"F(FMA|MUL|ADD|MNMX|2FP|SEL)",
    "fetches of 16 bytes": r"(LDG|LDGSTS|STG)\.\S*128",
    "fetches of less": r"(LDG|LDGSTS|STG|RED|ATOMG)\.",
    "shared memory": r"LDS|STS|LDSM|STSM|LDT|STT",
    "spills": r"LDL|STL",
    "waits for products": r"WARPGROUP\.DEPBAR|UTCBAR",
    "barriers": r"BAR\.|SYNCS",
}
"""Instructions by the beginning of their names, the first that fits; all others are `others`."""
_LABEL = re.compile(r"^(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\w+ )?(.*?) ?;")
_BACK = re.compile(r"BRA.*`\((\.L_x_\d+)\)")


def loops(listing: str) -> Iterator[list[str]]:
    """Instructions of each innermost loop of a listing, as nvdisasm prints it."""
    labels: dict[str, int] = {}
    instructions: list[str] = []
    ended = 0
    for line in listing.splitlines():
        if match := _LABEL.match(line):
            labels[match[1]] = len(instructions)
        elif match := _INSTRUCTION.search(line):
            instructions.append(match[1])
            back = _BACK.search(match[1])
            if back and ended <= labels.get(back[1], -1) < len(instructions) - 1:
                ended = len(instructions)
                yield instructions[labels[back[1]] :]


def kind_of(instruction: str) -> str:
    """Which of `KINDS` an instruction is."""
    fits = (kind for kind, names in KINDS.items() if re.match(names, instruction))
    return next(fits, "others")


def main() -> None:
    """Compile and count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("kernel", help="name, maps and widths: keys/2/64/128")
    parser.add_argument("tile", type=int, nargs="+", help="queries, keys, warps, stages, ahead")
    parser.add_argument("--part", choices=PARTS, default="90")
    arguments = parser.parse_args()
    name, *sizes = arguments.kernel.split("/")
    if len(sizes) != 3 or not all(size.isdecimal() for size in sizes):
        parser.error(f"no kernel {arguments.kernel}: a name, maps and widths, as keys/2/64/128")
    maps, d, e = map(int, sizes)
    if name not in kernels_of(maps):
        parser.error(f"no kernel {name}: of {maps} maps there are {', '.join(kernels_of(maps))}")
    if not 4 <= len(arguments.tile) <= 5:
        parser.error("a tile is queries, keys, warps and stages, and how many maps are ahead")
    kernel, tile = Kernel(name, maps, d, e), Tile(*arguments.tile)
    if tile.ahead > kernel.most_ahead:
        parser.error(f"{kernel} can have {kernel.most_ahead} maps ahead at most")
    print(compiled(kernel, tile, arguments.part))
    for loop in loops(by_tool("nvdisasm", "-c", code(kernel, tile, arguments.part).asm["cubin"])):
        counted = Counter(map(kind_of, loop))
        if not counted["products"]:
            continue
        kinds = ", ".join(f"{counted[kind]} {kind}" for kind in [*KINDS, "others"] if counted[kind])
        print(f"loop of {len(loop)}: {kinds}")


if __name__ == "__main__":
    main()
