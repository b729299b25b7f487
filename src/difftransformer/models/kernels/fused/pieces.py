"""What the fused kernels share: rows from memory, and who sees whom.

Suffixes of all of them: ROWS queries and KEYS keys to a tile, WIDTH columns of a matrix in a BLOCK
whose size is a power of two. Offsets of a tile in a matrix are counted in 64 bits, those inside of
it in 32.
"""

import triton
import triton.language as tl

LOG2_E = 1.4426950408889634
"""Exponentials are of 2 here, which the hardware has: exp(x) = exp2(x LOG2_E)."""
SIZES = ["B", "H", "G", "T", "S"]
"""Numbers for which kernels are not compiled anew: they change from call to call."""


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
    """Rows ``start`` and on, [COUNT, BLOCK]; zeros past WIDTH and, if checked, past ``end``."""
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
    """Write [COUNT, BLOCK] to rows ``start`` and on, up to ``end`` and column WIDTH."""
    rows, columns = tl.arange(0, COUNT), tl.arange(0, BLOCK)
    at = base + tl.cast(start, tl.int64) * row_stride + rows[:, None] * row_stride + columns
    inside = (start + rows < end)[:, None] & (columns < WIDTH)[None, :]
    tl.store(at, values.to(base.dtype.element_ty), mask=inside)


@triton.jit
def load_numbers(base, start, row_stride, end, COUNT: tl.constexpr):
    """A number of each row, [COUNT]; zeros past ``end``."""
    rows = start + tl.arange(0, COUNT)
    return tl.load(base + rows * row_stride, mask=rows < end, other=0.0)


@triton.jit
def load_pairs(base, start, row_stride, end, COUNT: tl.constexpr, COPIES: tl.constexpr):
    """Two numbers of each row that lie side by side, [COUNT] each; zeros past ``end``.

    COPIES, a power of two: Triton 3.6 lets each thread load whatever it needs of a vector that has
    fewer numbers than there are threads, which are most of it and one by one. Of one with so many
    copies each thread loads a part, all at once.
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
    """Which of the keys n and on the queries m and on see; none of them past S.

    [ROWS, KEYS] for ACROSS 1, [KEYS, ROWS] for 0. Queries past T, whose results nobody keeps, may
    see any where there is no mask.
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
