"""Compile the kernels for any GPU architecture: registers, spills and shared memory.

This module is for tests, and for checking changes of kernels or tiles. No computation imports it.
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
"""Bytes of shared memory available to one block, by compute capability without its point."""
LEAST_SHARED = 99 * 1024
"""Shared memory per block on GPUs of capability 8.6, 8.9 and 12.0, which use the tiles of 8.0."""
TENSOR_COLUMNS = 512
"""Columns of tensor memory available to one block."""
MOST_SPILLED = 128
"""Largest number of bytes of spilled registers with which a tile is shipped."""
_TYPES = {"mask": "*u8"} | dict.fromkeys(("lse", "lse_grad", "statistics", "lam"), "*fp32")
_FLOATS = ("scale", "factor")


class Compiled(NamedTuple):
    """Resources that one compiled kernel uses, in bytes except for registers."""

    registers: int
    spilled: int
    shared: int
    tensor: int = 0
    """Columns of tensor memory (10.0 only)."""
    overwritten: int = 0
    """Buffers that are overwritten while a multiplication may read them, see `hazards`."""
    serialized: bool = False
    """Whether the assembler serializes the asynchronous multiplications of 9.0."""

    def fits(self, part: str) -> bool:
        """Return whether the kernel is correct, fits the architecture, and is fast enough."""
        within = self.shared <= PARTS[part] and self.tensor <= TENSOR_COLUMNS
        slow = self.spilled > MOST_SPILLED or self.serialized
        return within and not slow and not self.overwritten


def compiled(kernel: Kernel, tile: Tile, part: str, widths: tuple[int, int] = (0, 0)) -> Compiled:
    """Compile a kernel with a tile for an architecture, and return the resources that it uses.

    The arguments are those of `code`.
    """
    compiled_kernel = code(kernel, tile, part, widths)
    registers, spilled = usage(compiled_kernel.asm["cubin"])
    columns = getattr(compiled_kernel.metadata, "tmem_size", None) or 0
    clashes = len(overwritten(compiled_kernel.asm["ttgir"], tile.stages))
    serialized = part == "90" and _serializes(compiled_kernel.asm["ptx"])
    return Compiled(
        registers, spilled, compiled_kernel.metadata.shared, columns, clashes, serialized
    )


def code(kernel: Kernel, tile: Tile, part: str, widths: tuple[int, int] = (0, 0)) -> Any:
    """Compile a kernel for bfloat16 with a tile for an architecture; return Triton's result.

    Args:
        kernel: The kernel to compile.
        tile: Tile sizes and compile options.
        part: Compute capability without its point, a key of `PARTS`.
        widths: Widths of keys and values if these are narrower than the kernel's blocks.

    Raises:
        triton.CompilationError: The kernel cannot be compiled.
    """
    from difftransformer.models.kernels.fused import launch

    function, constants = launch.specialized(kernel, tile, head_dim=widths[0], value_dim=widths[1])
    return code_of(function, constants, part, num_warps=tile.warps, num_stages=tile.stages)


def code_of(function: Any, constants: dict[str, Any], part: str, **options: int) -> Any:
    """Compile a Triton function whose arguments have the names of our kernels' arguments.

    Args:
        function: The Triton function.
        constants: Compile-time constants by argument name.
        part: Compute capability without its point, a key of `PARTS`.
        **options: Options of Triton's compiler.
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
    # Addresses and strides are multiples of 16 bytes, as in real calls.
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
    """Return (key, value) widths that a kernel also runs, though they are narrower than its blocks.

    Models have such widths: 96 in blocks of 128.
    """
    return [(96, 96 * kernel.e // kernel.d)] if kernel.d == 128 and not kernel.masked else []


def _serializes(ptx: str) -> bool:
    """Return whether the assembler reports serialized multiplications; Triton hides the report."""
    from triton import knobs

    command = [knobs.nvidia.ptxas.path, "--gpu-name=sm_90a", "--output-file", os.devnull]
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        process: Any = subprocess.run(
            [*command, file.name], capture_output=True, text=True, check=True
        )
    return "wgmma.mma_async instructions are serialized" in process.stderr + process.stdout


def usage(cubin: bytes) -> tuple[int, int]:
    """Return the number of registers and the bytes of stack (spills) that compiled code uses."""
    # The compiler may add functions besides the kernel; they use few resources.
    output = by_tool("cuobjdump", "--dump-resource-usage", cubin)
    matches = re.findall(r"REG:(\d+) STACK:(\d+)", output)
    assert matches, output
    return max(int(regs) for regs, _ in matches), max(int(stack) for _, stack in matches)


def by_tool(name: str, option: str, cubin: bytes) -> str:
    """Run a CUDA binary tool that Triton ships on compiled code, and return its output."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin" / name
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        process: Any = subprocess.run(
            [tool, option, file.name], capture_output=True, text=True, check=True
        )
    return str(process.stdout)
