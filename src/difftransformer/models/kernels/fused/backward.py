"""What the backward kernels share: statistics of rows, and a tile of maps.

With A = A1 - lam A2, P = dO V' and D_i = rowsum(dO * O_i), the gradients of the scores are
A1 * (P - D_1) and -lam A2 * (P - D_2), and that of lam is -sum(D_2). Gradients of queries and keys
get their -lam when they have been summed; in float16 those of both maps so overflow alike. Other
names and suffixes as in `forward`.

AHEAD, of the kernels of queries and of keys without atomic sums: of so many maps the scores are
those of the next tile, multiplied beside the exponentials of this one. Where tensor cores run
beside a program, as in 9.0, each product that its own tile uses is waited for, and all before it;
what goes ahead is not. One product has to be waited for: without P, which gradients of values do
not want, one map goes ahead at most.
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
    """Write [B, H, T, 2 maps]: the lse of the maps of each row, to base 2, and D_i of each.

    A gradient of the lse is one of -D_1.
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
    """A1, A2 and P of a tile, and scores of the next.

    ACROSS 1: x are queries and y keys, beside the gradients of the output and the values, and tiles
    are [ROWS, KEYS]; 0: the other way round, [KEYS, ROWS], which what sums over the queries can
    multiply as it is. ``ahead``: scores of this tile that have been multiplied; the next has the
    COUNT rows of y from ``start`` on. All products come before what they run beside.
    """
    scores1 = ahead1 if AHEAD else tl.dot(x1, tl.trans(y1))
    scores2 = scores1
    if PAIR:
        scores2 = ahead2 if AHEAD > 1 else tl.dot(x2, tl.trans(y2))
    p = tl.dot(x_value, tl.trans(y_value))
    # What has been waited for leaves its registers before those of the next tile come into them.
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
    """Scores of a tile of queries or keys with the COUNT of the others from ``start`` on."""
    return tl.dot(x, tl.trans(load_rows(y, start, y_row, end, COUNT, WIDTH, BLOCK, True)))


@triton.jit
def _weights(exponent, seen, CHECK: tl.constexpr):
    """A map from exponents to base 2."""
    found = tl.exp2(exponent)
    if CHECK:
        found = tl.where(seen, found, 0.0)
    return found


@triton.jit
def of_scores(map, p, row_sum, ACROSS: tl.constexpr):
    """The gradient of a map's scores, of the second without its -lam."""
    return map * (p - tl.expand_dims(row_sum, ACROSS))
