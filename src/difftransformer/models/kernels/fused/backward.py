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
def _map(q, k, lse, seen, factor, CHECK: tl.constexpr):
    """One map, [ROWS, KEYS]."""
    weights = tl.exp2(tl.dot(q, tl.trans(k)) * factor - lse[:, None])
    if CHECK:
        weights = tl.where(seen, weights, 0.0)
    return weights


@triton.jit
def tile(
    q1,
    q2,
    k1,
    k2,
    value,
    g,
    lse,
    sums,
    map_stride,
    lam,
    seen,
    m,
    T,
    factor,
    PAIR: tl.constexpr,
    CHECK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """The map that meets the values and the gradients of both maps' scores, [ROWS, KEYS] each."""
    lse1 = load_numbers(lse, m, T, ROWS)
    sums1 = load_numbers(sums, m, T, ROWS)
    both = _map(q1, k1, lse1, seen, factor, CHECK)
    p = tl.dot(g, tl.trans(value))
    scores1 = both * (p - sums1[:, None])
    scores2 = scores1
    if PAIR:
        lse2 = load_numbers(lse + map_stride, m, T, ROWS)
        sums2 = load_numbers(sums + map_stride, m, T, ROWS)
        subtracted = lam * _map(q2, k2, lse2, seen, factor, CHECK)
        both -= subtracted
        scores2 = -subtracted * (p - sums2[:, None])
    return both, scores1.to(q1.dtype), scores2.to(q1.dtype)
