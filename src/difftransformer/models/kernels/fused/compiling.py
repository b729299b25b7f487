"""The kernels compiled for a part that is not here: registers, spills and shared memory.

For tests and for whoever changes a kernel or a tile; nothing that computes imports this.
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from difftransformer.models.kernels.fused.hazards import overwritten
from difftransformer.models.kernels.fused.tiles import Kernel, Tile

PARTS = {"80": 163 * 1024, "90": 227 * 1024, "100": 227 * 1024}
"""Compute capability without its point -> bytes of shared memory that one block may have."""
LEAST_SHARED = 99 * 1024
"""What one block may have on cards of 8.6, 8.9 and 12.0, which take the tiles of 8.0."""
TENSOR_COLUMNS = 512
"""Of tensor memory, that one block may have."""
MOST_SPILLED = 128
"""Bytes of registers that a tile which we ship may keep in memory."""
_TYPES = {"mask": "*u8"} | dict.fromkeys(("lse", "lse_grad", "statistics", "lam"), "*fp32")
_FLOATS = ("scale", "factor")


class Compiled(NamedTuple):
    """What one kernel takes of a part; bytes but for the registers."""

    registers: int
    spilled: int
    shared: int
    tensor: int = 0
    """Columns of tensor memory, which 10.0 has; of a kernel that wants more there is no code."""
    overwritten: int = 0
    """Buffers that are filled while a product may read them, see `hazards`."""
    serialized: bool = False
    """Whether the assembler lets each product of 9.0 end before anything else goes on."""

    def fits(self, part: str) -> bool:
        """Whether we ship it: it is right, has what it takes, and keeps the tensor cores busy."""
        within = self.shared <= PARTS[part] and self.tensor <= TENSOR_COLUMNS
        slow = self.spilled > MOST_SPILLED or self.serialized
        return within and not slow and not self.overwritten


def compiled(kernel: Kernel, tile: Tile, part: str, widths: tuple[int, int] = (0, 0)) -> Compiled:
    """What a kernel takes that is compiled as by `code`."""
    made = code(kernel, tile, part, widths)
    registers, spilled = usage(made.asm["cubin"])
    columns = getattr(made.metadata, "tmem_size", None) or 0
    clashes = len(overwritten(made.asm["ttgir"], tile.stages))
    serialized = part == "90" and _serializes(made.asm["ptx"])
    return Compiled(registers, spilled, made.metadata.shared, columns, clashes, serialized)


def code(kernel: Kernel, tile: Tile, part: str, widths: tuple[int, int] = (0, 0)) -> Any:
    """Compile a kernel of bfloat16 with a tile for a part; return what Triton makes of it.

    Args:
        kernel: Which one.
        tile: Its tile.
        part: Compute capability without its point, of `PARTS`.
        widths: Of keys and of values, where they are less than those of the kernel's blocks.

    Raises:
        triton.CompilationError: it cannot be compiled.
    """
    from difftransformer.models.kernels.fused import launch

    function, constants = launch.specialized(kernel, tile, head_dim=widths[0], value_dim=widths[1])
    return code_of(function, constants, part, num_warps=tile.warps, num_stages=tile.stages)


def code_of(function: Any, constants: dict[str, Any], part: str, **options: int) -> Any:
    """The same of any function of Triton's with the arguments of ours.

    Args:
        function: What is compiled.
        constants: What it is compiled for, by the names of its arguments.
        part: Compute capability without its point, of `PARTS`.
        **options: Of Triton's compiler.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from difftransformer.models.kernels.fused.launch import POINTERS

    names = function.arg_names
    signature: dict[str, str] = {}
    for name in names:
        if name in constants:
            signature[name] = "constexpr"
        elif name in _FLOATS:
            signature[name] = "fp32"
        elif name == "q_grad" and constants.get("ATOMIC"):
            signature[name] = "*fp32"
        elif name in POINTERS:
            signature[name] = _TYPES.get(name, "*bf16")
        else:
            signature[name] = "i32"
    # Addresses and strides are multiples of 16 bytes, as when it runs.
    aligned = [
        name
        for name in names
        if name in POINTERS
        or (name.endswith(("_batch", "_head", "_row")) and not name.startswith("mask"))
    ]
    source = ASTSource(
        fn=function,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    return triton.compile(source, target=GPUTarget("cuda", int(part), 32), options=options)


def further_widths(kernel: Kernel) -> list[tuple[int, int]]:
    """Widths without blocks of their own that models have, in those of a kernel: 96 in 128."""
    return [(96, 96 * kernel.e // kernel.d)] if kernel.d == 128 and not kernel.masked else []


def _serializes(ptx: str) -> bool:
    """Whether the assembler says so, which Triton does not pass on."""
    from triton import knobs

    command = [knobs.nvidia.ptxas.path, "--gpu-name=sm_90a", "--output-file", os.devnull]
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        asked: Any = subprocess.run(
            [*command, file.name], capture_output=True, text=True, check=True
        )
    return "wgmma.mma_async instructions are serialized" in asked.stderr + asked.stdout


def usage(cubin: bytes) -> tuple[int, int]:
    """Registers of a kernel's code and bytes of stack, which is what spills take."""
    # Beside the kernel there may be functions that the compiler adds, which take next to nothing.
    said = by_tool("cuobjdump", "--dump-resource-usage", cubin)
    found = re.findall(r"REG:(\d+) STACK:(\d+)", said)
    assert found, said
    return max(int(one) for one, _ in found), max(int(one) for _, one in found)


def by_tool(name: str, option: str, cubin: bytes) -> str:
    """What a tool of the assembler's says of a kernel's code; Triton brings them along."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin" / name
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        asked: Any = subprocess.run(
            [tool, option, file.name], capture_output=True, text=True, check=True
        )
    return str(asked.stdout)
