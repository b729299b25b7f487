"""Functions that all fused kernels share: loading and storing rows, and the mask of a tile.

A tile has ROWS queries and KEYS keys. A matrix has WIDTH columns in a BLOCK whose size is a power
of two. Offsets of a tile in a matrix are 64-bit numbers, offsets within a tile 32-bit numbers.
"""

import triton
import triton.language as tl

LOG2_E = 1.4426950408889634
"""Base-2 logarithm of e: the kernels use exp2, a hardware instruction; exp(x) = exp2(x LOG2_E)."""
SIZES = ["B", "H", "G", "T", "S"]
"""Arguments that change from call to call; their values do not make Triton compile again."""


@triton.jit
def load_rows(
    base,
    start,
    row_stride,
    end,
    COUNT: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    CHECK: tl.constexpr,
):
    """Return COUNT rows from ``start`` on, [COUNT, BLOCK].

    Columns past WIDTH are zero and, with CHECK, rows past ``end``.
    """
    rows, columns = tl.arange(0, COUNT), tl.arange(0, BLOCK)
    at = base + tl.cast(start, tl.int64) * row_stride + rows[:, None] * row_stride + columns
    if CHECK:
        found = tl.load(
            at, mask=(start + rows < end)[:, None] & (columns < WIDTH)[None, :], other=0.0
        )
    elif WIDTH < BLOCK:
        found = tl.load(at, mask=(columns < WIDTH)[None, :], other=0.0)
    else:
        found = tl.load(at)
    return found


@triton.jit
def store_rows(
    base,
    values,
    start,
    row_stride,
    end,
    COUNT: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write values [COUNT, BLOCK] to the rows from ``start`` on, up to ``end`` and column WIDTH."""
    rows, columns = tl.arange(0, COUNT), tl.arange(0, BLOCK)
    at = base + tl.cast(start, tl.int64) * row_stride + rows[:, None] * row_stride + columns
    inside = (start + rows < end)[:, None] & (columns < WIDTH)[None, :]
    tl.store(at, values.to(base.dtype.element_ty), mask=inside)


@triton.jit
def load_numbers(base, start, row_stride, end, COUNT: tl.constexpr):
    """Return one number per row, [COUNT], from row ``start`` on; zeros past ``end``."""
    rows = start + tl.arange(0, COUNT)
    return tl.load(base + rows * row_stride, mask=rows < end, other=0.0)


@triton.jit
def load_pairs(base, start, row_stride, end, COUNT: tl.constexpr, COPIES: tl.constexpr):
    """Return two adjacent numbers per row as two vectors [COUNT]; zeros past ``end``.

    COPIES, a power of two, is the number of copies of the numbers to load. If a vector has fewer
    numbers than there are threads, Triton 3.6 lets each thread load all numbers that it needs one
    by one, which is most of them. With enough copies, each thread loads one part in a single step.
    """
    rows = start + tl.arange(0, COUNT)
    at = base + rows[:, None] * row_stride + tl.arange(0, 2 * COPIES)[None, :] % 2
    found = tl.load(at, mask=(rows < end)[:, None], other=0.0)
    found = tl.permute(tl.reshape(found, (COUNT, COPIES, 2)), (0, 2, 1))
    for left in tl.static_range(7):
        if (COPIES >> left) > 1:
            found, _ = tl.split(tl.reshape(found, (COUNT, 2, COPIES >> (left + 1), 2)))
    return tl.split(tl.reshape(found, (COUNT, 2)))


@triton.jit
def seen_keys(
    mask,
    mask_row,
    mask_column,
    m,
    n,
    T,
    S,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    MASKED: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """Return which of the keys from n on are visible to the queries from m on; keys past S are not.

    The result is [ROWS, KEYS] with ACROSS 1, [KEYS, ROWS] with 0. Without a mask, queries past T,
    whose results are not stored, may see any key.
    """
    row = tl.expand_dims(tl.arange(0, ROWS), ACROSS)
    key = tl.expand_dims(tl.arange(0, KEYS), 1 - ACROSS)
    inside = n + key < S
    if MASKED:
        inside = inside & (m + row < T)
        at = mask + tl.cast(m, tl.int64) * mask_row + tl.cast(n, tl.int64) * mask_column
        seen = tl.load(at + row * mask_row + key * mask_column, mask=inside, other=0) != 0
    else:
        seen = inside & (n + key <= m + row + (S - T))
    return seen
