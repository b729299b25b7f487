"""The forward kernel: one pass over the keys for all maps of a head, reading each value once.

With PAIR the kernel computes two maps, softmax(q1 k1') - lam softmax(q2 k2'), otherwise one. With
APART each program computes one of two maps. Per map, the scores take 1 matrix multiplication of
T x T x d, and the weighted sum of values of width 2d takes 2. Shapes are those of
`models.kernels.Kernel`.
"""

import triton
import triton.language as tl

from difftransformer.models.kernels.fused.pieces import SIZES, load_rows, seen_keys, store_rows


@triton.jit
def _online(scores, largest, total, gathered, v, factor, MASKED: tl.constexpr):
    """Add a tile of scores [ROWS, KEYS] to a running softmax and its weighted sum of values."""
    new = tl.maximum(largest, tl.max(scores, 1))
    shift = new * factor
    if MASKED:  # a query may have no visible key yet
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
    """Add the keys from ``start`` to ``stop`` to the running softmaxes of all maps.

    Without CHECK, all of these keys must exist and be visible to all queries.
    """
    largest1, total1, gathered1, largest2, total2, gathered2 = state
    for n in range(start, stop, KEYS):
        k1 = load_rows(k, n, k_row, S, KEYS, HEAD_DIM, D, CHECK)
        scores1 = tl.dot(q1, tl.trans(k1))
        scores2 = scores1
        if PAIR:  # before the first softmax, so that the second overlaps with its weighted sum
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
    """Compute the attention output of one block of queries of one head.

    It writes out [B, T, H, VALUE_DIM] and lse [maps, B, H, T] to base 2. With KEEP it also writes
    the output of the second map, which the backward pass needs. With APART it writes the output of
    each map, and the caller subtracts them; the map is the second axis of the grid. ``factor`` is
    scale LOG2_E.
    """
    blocks = tl.cdiv(T, ROWS)
    program = tl.program_id(0)
    m = (blocks - 1 - program % blocks) * ROWS  # the queries with the most keys first
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
        whole = (m + S - T) // KEYS * KEYS  # all queries see all keys before it
        stop = tl.minimum(S, m + ROWS + S - T)
    # The keys that need a check come first, and there is at least one. If both loops could be
    # empty, the assembler would serialize the multiplications. All queries see a key of the
    # first tile.
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
    """Return the sums of a softmax [ROWS] to divide by: 1 for rows without visible keys."""
    if MASKED:
        total = tl.where(total == 0.0, 1.0, total)
    return total
