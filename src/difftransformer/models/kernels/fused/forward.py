"""The forward kernel: one pass over the keys for the maps of a head, the value read once.

PAIR: two maps, softmax(q1 k1') - lam softmax(q2 k2'), else one; APART: one of two maps. Of products
of T x T x d a map takes 1 for its scores and, with values of 2d, 2 for what it gathers. Shapes are
those of `models.kernels.Kernel`.
"""

import triton
import triton.language as tl

from difftransformer.models.kernels.fused.pieces import SIZES, load_rows, seen_keys, store_rows


@triton.jit
def _online(scores, largest, total, gathered, v, factor, MASKED: tl.constexpr):
    """Add a tile of scores [ROWS, KEYS] to a running softmax and to what it gathers of v."""
    new = tl.maximum(largest, tl.max(scores, 1))
    shift = new * factor
    if MASKED:  # a row may have seen nothing yet
        shift = tl.where(new == float("-inf"), 0.0, shift)
    weights = tl.exp2(scores * factor - shift[:, None])
    shrink = tl.exp2(largest * factor - shift)
    total = total * shrink + tl.sum(weights, 1)
    gathered = tl.dot(weights.to(v.dtype), v, gathered * shrink[:, None])
    return new, total, gathered


@triton.jit
def _attend(
    state,
    q1,
    q2,
    k,
    k_head,
    k_row,
    v,
    v_row,
    mask,
    mask_row,
    mask_column,
    m,
    start,
    stop,
    T,
    S,
    factor,
    PAIR: tl.constexpr,
    MASKED: tl.constexpr,
    CHECK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Go over the keys from ``start`` to ``stop``; unchecked all of them are there and seen."""
    largest1, total1, gathered1, largest2, total2, gathered2 = state
    for n in range(start, stop, KEYS):
        k1 = load_rows(k, n, k_row, S, KEYS, HEAD_DIM, D, CHECK)
        scores1 = tl.dot(q1, tl.trans(k1))
        scores2 = scores1
        if PAIR:  # both before the first softmax: the second runs beside what the first gathers
            k2 = load_rows(k + k_head, n, k_row, S, KEYS, HEAD_DIM, D, CHECK)
            scores2 = tl.dot(q2, tl.trans(k2))
        if CHECK:
            seen = seen_keys(mask, mask_row, mask_column, m, n, T, S, ROWS, KEYS, MASKED, 1)
            scores1 = tl.where(seen, scores1, float("-inf"))
            scores2 = tl.where(seen, scores2, float("-inf"))
        value = load_rows(v, n, v_row, S, KEYS, VALUE_DIM, E, CHECK)
        largest1, total1, gathered1 = _online(
            scores1, largest1, total1, gathered1, value, factor, MASKED
        )
        if PAIR:
            largest2, total2, gathered2 = _online(
                scores2, largest2, total2, gathered2, value, factor, MASKED
            )
    return largest1, total1, gathered1, largest2, total2, gathered2


@triton.jit(do_not_specialize=SIZES)
def forward(
    q,
    k,
    v,
    lam,
    mask,
    out,
    second,
    lse,
    q_batch,
    q_head,
    q_row,
    k_batch,
    k_head,
    k_row,
    v_batch,
    v_head,
    v_row,
    mask_batch,
    mask_row,
    mask_column,
    B,
    H,
    G,
    T,
    S,
    factor,
    PAIR: tl.constexpr,
    APART: tl.constexpr,
    MASKED: tl.constexpr,
    KEEP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """One block of queries of one head.

    Writes out [B, T, H, VALUE_DIM] and lse [maps, B, H, T] to base 2; KEEP: also the second map's
    own output, which the gradient wants. APART: each map's own, whose difference is left to the
    caller; the second axis of the grid has the maps. ``factor`` is scale LOG2_E.
    """
    blocks = tl.cdiv(T, ROWS)
    program = tl.program_id(0)
    m = (blocks - 1 - program % blocks) * ROWS  # the longest rows of a head first
    bh = program // blocks
    b, h = tl.cast(bh // H, tl.int64), bh % H
    g = h // (H // G)
    MAPS: tl.constexpr = 2 if PAIR or APART else 1
    which = tl.program_id(1)
    if APART and which == 1:
        out = second
    q += b * q_batch + tl.cast(MAPS * h + which, tl.int64) * q_head
    k += b * k_batch + tl.cast(MAPS * g + which, tl.int64) * k_head
    lse += tl.cast(which * B * H, tl.int64) * T
    v += b * v_batch + tl.cast(g, tl.int64) * v_head
    if MASKED:
        mask += b * mask_batch
    q1 = load_rows(q, m, q_row, T, ROWS, HEAD_DIM, D, True)
    q2 = load_rows(q + q_head, m, q_row, T, ROWS, HEAD_DIM, D, True) if PAIR else q1
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    gathered = tl.zeros([ROWS, E], tl.float32)
    state = (largest, total, gathered, largest, total, gathered)
    if MASKED:
        whole, stop = 0, S
    else:
        whole = (m + S - T) // KEYS * KEYS  # before it all queries see all keys
        stop = tl.minimum(S, m + ROWS + S - T)
    # What is checked comes first and is never nothing: were both loops possibly empty, the
    # assembler would let each product end before the next begins. All rows see a key of the first
    # tile.
    tl.assume(whole < stop)
    state = _attend(
        state,
        q1,
        q2,
        k,
        k_head,
        k_row,
        v,
        v_row,
        mask,
        mask_row,
        mask_column,
        m,
        whole,
        stop,
        T,
        S,
        factor,
        PAIR,
        MASKED,
        True,
        HEAD_DIM,
        VALUE_DIM,
        D,
        E,
        ROWS,
        KEYS,
    )
    if not MASKED:
        state = _attend(
            state,
            q1,
            q2,
            k,
            k_head,
            k_row,
            v,
            v_row,
            mask,
            mask_row,
            mask_column,
            m,
            0,
            whole,
            T,
            S,
            factor,
            PAIR,
            MASKED,
            False,
            HEAD_DIM,
            VALUE_DIM,
            D,
            E,
            ROWS,
            KEYS,
        )
    largest1, total1, gathered1, largest2, total2, gathered2 = state
    rows = m + tl.arange(0, ROWS)
    at = tl.cast(bh, tl.int64) * T + rows
    total1 = _divisor(total1, MASKED)
    tl.store(lse + at, largest1 * factor + tl.log2(total1), mask=rows < T)
    row = H * VALUE_DIM
    place = b * T * row + h * VALUE_DIM
    result = gathered1 / total1[:, None]
    if PAIR:
        total2 = _divisor(total2, MASKED)
        tl.store(
            lse + tl.cast(B * H, tl.int64) * T + at,
            largest2 * factor + tl.log2(total2),
            mask=rows < T,
        )
        result2 = gathered2 / total2[:, None]
        result -= tl.load(lam) * result2
        if KEEP:
            store_rows(second + place, result2, m, row, T, ROWS, VALUE_DIM, E)
    store_rows(out + place, result, m, row, T, ROWS, VALUE_DIM, E)


@triton.jit
def _divisor(total, MASKED: tl.constexpr):
    """Sums of a softmax [ROWS]; a row that sees nothing gathers nothing."""
    if MASKED:
        total = tl.where(total == 0.0, 1.0, total)
    return total
