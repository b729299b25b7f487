"""What the backward kernels share: sums over rows, and one tile of maps and their gradients.

With A = A1 - lam A2, P = dO V' and D_i = rowsum(dO * O_i), the gradients of the scores are
A1 * (P - D_1) and -lam A2 * (P - D_2), and that of lam is -sum(D_2). Names and suffixes as in
`forward`.
"""

import triton
import triton.language as tl

from difftransformer.models.kernels.fused.pieces import SIZES, load_numbers, load_rows


@triton.jit(do_not_specialize=SIZES)
def row_sums(
    grad,
    grad_batch,
    grad_row,
    grad_head,
    out,
    second,
    lse_grad,
    lam,
    sums,
    B,
    H,
    T,
    PAIR: tl.constexpr,
    LSE_GRAD: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    E: tl.constexpr,
    ROWS: tl.constexpr,
):
    """D_i of each row, [maps, B, H, T]; a gradient of the lse is one of -D_1."""
    blocks = tl.cdiv(T, ROWS)
    m, bh = tl.program_id(0) % blocks * ROWS, tl.program_id(0) // blocks
    b, h = tl.cast(bh // H, tl.int64), bh % H
    row = H * VALUE_DIM
    place = b * T * row + h * VALUE_DIM
    grad += b * grad_batch + tl.cast(h, tl.int64) * grad_head
    g = load_rows(grad, m, grad_row, T, ROWS, VALUE_DIM, E, True).to(tl.float32)
    o = load_rows(out + place, m, row, T, ROWS, VALUE_DIM, E, True).to(tl.float32)
    rows = m + tl.arange(0, ROWS)
    at = tl.cast(bh, tl.int64) * T + rows
    first = tl.sum(g * o, 1)
    if PAIR:
        o2 = load_rows(second + place, m, row, T, ROWS, VALUE_DIM, E, True).to(tl.float32)
        other = tl.sum(g * o2, 1)
        first += tl.load(lam) * other
        tl.store(sums + tl.cast(B * H, tl.int64) * T + at, other, mask=rows < T)
    if LSE_GRAD:
        first -= tl.load(lse_grad + at, mask=rows < T, other=0.0)
    tl.store(sums + at, first, mask=rows < T)


@triton.jit
def maps(
    x1,
    x2,
    y1,
    y2,
    x_value,
    y_value,
    lse,
    map_stride,
    lam,
    seen,
    m,
    T,
    factor,
    PAIR: tl.constexpr,
    CHECK: tl.constexpr,
    ROWS: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """A1, lam A2 and P of a tile.

    ACROSS 1: x are queries and y keys, beside the gradients of the output and the values, and tiles
    are [ROWS, KEYS]; 0: the other way round, [KEYS, ROWS], which what sums over the queries can
    multiply as it is. All products come first, so that what follows runs beside later ones.
    """
    lse1 = tl.expand_dims(load_numbers(lse, m, T, ROWS), ACROSS)
    lse2 = lse1
    if PAIR:
        lse2 = tl.expand_dims(load_numbers(lse + map_stride, m, T, ROWS), ACROSS)
    kept = tl.dot(x1, tl.trans(y1))
    subtracted = kept
    if PAIR:
        subtracted = tl.dot(x2, tl.trans(y2))
    p = tl.dot(x_value, tl.trans(y_value))
    kept = _weights(kept, lse1, seen, factor, CHECK)
    if PAIR:
        subtracted = lam * _weights(subtracted, lse2, seen, factor, CHECK)
    return kept, subtracted, p


@triton.jit
def _weights(scores, lse, seen, factor, CHECK: tl.constexpr):
    """A map from its scores."""
    weights = tl.exp2(scores * factor - lse)
    if CHECK:
        weights = tl.where(seen, weights, 0.0)
    return weights


@triton.jit
def of_scores(weights, p, sums, m, T, ROWS: tl.constexpr, ACROSS: tl.constexpr):
    """The gradient of a map's scores."""
    return weights * (p - tl.expand_dims(load_numbers(sums, m, T, ROWS), ACROSS))
