"""Functions that the backward kernels share: statistics of rows, and the maps of a tile.

With A = A1 - lam A2, P = dO V' and D_i = rowsum(dO * O_i), the gradients of the scores are
A1 * (P - D_1) and -lam A2 * (P - D_2), and the gradient of lam is -sum(D_2). The factor -lam is
applied to the gradients of queries and keys after summation, so that in float16 the gradients of
both maps overflow alike. Other names and suffixes are those of `forward`.

AHEAD is a constant of the kernels of queries, and of keys without atomic sums: the number of maps
whose scores are computed one tile ahead, while the exponentials of the current tile are computed.
Where tensor cores run asynchronously, as on 9.0, a program waits for each product that its own tile
uses, and for all products started before it, but not for products of the next tile. At least one
product has to be waited for, so gradients of values alone, which do not need P, compute at most one
map ahead.
"""

import triton
import triton.language as tl

from difftransformer.models.kernels.fused.pieces import SIZES, load_rows


@triton.jit(do_not_specialize=SIZES)
def row_statistics(
    grad,
    grad_batch,
    grad_row,
    grad_head,
    out,
    second,
    lse,
    lse_grad,
    lam,
    statistics,
    B,
    H,
    T,
    PAIR: tl.constexpr,
    LSE_GRAD: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    E: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Write the log-sum-exp to base 2 and D_i of each map and row, as [B, H, T, 2 maps].

    The log-sum-exps of a row come first. A gradient of the log-sum-exp is subtracted from D_1.
    """
    blocks = tl.cdiv(T, ROWS)
    m, bh = tl.program_id(0) % blocks * ROWS, tl.program_id(0) // blocks
    b, h = tl.cast(bh // H, tl.int64), bh % H
    row = H * VALUE_DIM
    place = b * T * row + h * VALUE_DIM
    grad += b * grad_batch + tl.cast(h, tl.int64) * grad_head
    g = load_rows(grad, m, grad_row, T, ROWS, VALUE_DIM, E, True).to(tl.float32)
    o = load_rows(out + place, m, row, T, ROWS, VALUE_DIM, E, True).to(tl.float32)
    rows = m + tl.arange(0, ROWS)
    there = rows < T
    at = tl.cast(bh, tl.int64) * T + rows
    first = tl.sum(g * o, 1)
    MAPS: tl.constexpr = 2 if PAIR else 1
    to = statistics + at * 2 * MAPS
    if PAIR:
        o2 = load_rows(second + place, m, row, T, ROWS, VALUE_DIM, E, True).to(tl.float32)
        other = tl.sum(g * o2, 1)
        first += tl.load(lam) * other
        lse2 = lse + tl.cast(B * H, tl.int64) * T
        tl.store(to + 1, tl.load(lse2 + at, mask=there), mask=there)
        tl.store(to + 3, other, mask=there)
    if LSE_GRAD:
        first -= tl.load(lse_grad + at, mask=there, other=0.0)
    tl.store(to, tl.load(lse + at, mask=there), mask=there)
    tl.store(to + MAPS, first, mask=there)


@triton.jit
def maps(
    x1,
    x2,
    y1,
    y2,
    x_value,
    y_value,
    lse1,
    lse2,
    ahead1,
    ahead2,
    next_y,
    y_head,
    y_row,
    start,
    end,
    seen,
    factor,
    PAIR: tl.constexpr,
    CHECK: tl.constexpr,
    AHEAD: tl.constexpr,
    ACROSS: tl.constexpr,
    COUNT: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return A1, A2 and P of a tile, and the scores of the next tile if they are computed ahead.

    With ACROSS 1, x are the queries and y the keys, x_value are gradients of the output, y_value
    are values, and tiles are [ROWS, KEYS]. With 0, the roles are exchanged and tiles are [KEYS,
    ROWS], the layout in which sums over queries multiply them. ``ahead1`` and ``ahead2`` are scores
    of this tile that are already computed; the next tile has the COUNT rows of y from ``start`` on.
    Each matrix multiplication comes before the operations that it overlaps with.
    """
    scores1 = ahead1 if AHEAD else tl.dot(x1, tl.trans(y1))
    scores2 = scores1
    if PAIR:
        scores2 = ahead2 if AHEAD > 1 else tl.dot(x2, tl.trans(y2))
    p = tl.dot(x_value, tl.trans(y_value))
    # The finished scores free their registers before the scores of the next tile need them.
    exponent1 = scores1 * factor - tl.expand_dims(lse1, ACROSS)
    exponent2 = exponent1
    if PAIR:
        exponent2 = scores2 * factor - tl.expand_dims(lse2, ACROSS)
    if AHEAD:
        ahead1 = scores_with(x1, next_y, start, y_row, end, COUNT, WIDTH, BLOCK)
    if AHEAD > 1:
        ahead2 = scores_with(x2, next_y + y_head, start, y_row, end, COUNT, WIDTH, BLOCK)
    kept = _weights(exponent1, seen, CHECK)
    subtracted = kept
    if PAIR:
        subtracted = _weights(exponent2, seen, CHECK)
    return kept, subtracted, p, ahead1, ahead2


@triton.jit
def scores_with(
    x, y, start, y_row, end, COUNT: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Return the scores of a tile x with COUNT rows of y from ``start`` on.

    x are queries and y keys, or the other way round.
    """
    return tl.dot(x, tl.trans(load_rows(y, start, y_row, end, COUNT, WIDTH, BLOCK, True)))


@triton.jit
def _weights(exponent, seen, CHECK: tl.constexpr):
    """Return the attention weights of exponents to base 2, 0 where ``seen`` is false."""
    found = tl.exp2(exponent)
    if CHECK:
        found = tl.where(seen, found, 0.0)
    return found


@triton.jit
def of_scores(map, p, row_sum, ACROSS: tl.constexpr):
    """Return the gradient of a map's scores; for the second map it lacks the factor -lam."""
    return map * (p - tl.expand_dims(row_sum, ACROSS))
