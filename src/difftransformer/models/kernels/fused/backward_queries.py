"""The backward kernel of queries: its sums have a fixed order, so results are bit-identical.

Of matrix multiplications of T x T x d it takes 2 for the maps, 2 for dO V' (with values of width
2d), and 2 for dQ. Names and suffixes are those of `forward` and `backward`.
"""

import triton
import triton.language as tl

from difftransformer.models.kernels.fused.backward import maps, of_scores, scores_with
from difftransformer.models.kernels.fused.pieces import (
    SIZES,
    load_numbers,
    load_rows,
    seen_keys,
    store_rows,
)


@triton.jit
def _add_keys(
    state,
    q1,
    q2,
    k,
    k_head,
    k_row,
    v,
    v_row,
    g,
    statistics,
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
    AHEAD: tl.constexpr,
    CHECK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Add the contributions of the keys from ``start`` to ``stop`` to the gradients of the queries.

    Without CHECK, all of these keys must exist and be visible to all queries.
    """
    q1_grad, q2_grad = state
    MAPS: tl.constexpr = 2 if PAIR else 1
    lse1 = load_numbers(statistics, m, 2 * MAPS, T, ROWS)
    lse2 = load_numbers(statistics + 1, m, 2 * MAPS, T, ROWS) if PAIR else lse1
    sum1 = load_numbers(statistics + MAPS, m, 2 * MAPS, T, ROWS)
    sum2 = load_numbers(statistics + 3, m, 2 * MAPS, T, ROWS) if PAIR else sum1
    ahead1 = scores_with(q1, k, start, k_row, S, KEYS, HEAD_DIM, D) if AHEAD else 0.0
    ahead2 = scores_with(q2, k + k_head, start, k_row, S, KEYS, HEAD_DIM, D) if AHEAD > 1 else 0.0
    for n in range(start, stop, KEYS):
        k1 = load_rows(k, n, k_row, S, KEYS, HEAD_DIM, D, CHECK)
        k2 = load_rows(k + k_head, n, k_row, S, KEYS, HEAD_DIM, D, CHECK) if PAIR else k1
        value = load_rows(v, n, v_row, S, KEYS, VALUE_DIM, E, CHECK)
        seen = 0
        if CHECK:
            seen = seen_keys(mask, mask_row, mask_column, m, n, T, S, ROWS, KEYS, MASKED, 1)
        kept, subtracted, p, ahead1, ahead2 = maps(
            q1,
            q2,
            k1,
            k2,
            g,
            value,
            lse1,
            lse2,
            ahead1,
            ahead2,
            k,
            k_head,
            k_row,
            n + KEYS,
            S,
            seen,
            factor,
            PAIR,
            CHECK,
            AHEAD,
            1,
            KEYS,
            HEAD_DIM,
            D,
        )
        scores = of_scores(kept, p, sum1, 1).to(k1.dtype)
        q1_grad = tl.dot(scores, k1, q1_grad)
        if PAIR:
            scores = of_scores(subtracted, p, sum2, 1)
            q2_grad = tl.dot(scores.to(k1.dtype), k2, q2_grad)
    return q1_grad, q2_grad


@triton.jit(do_not_specialize=SIZES)
def queries(
    q,
    k,
    v,
    lam,
    mask,
    grad,
    statistics,
    q_grad,
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
    grad_batch,
    grad_row,
    grad_head,
    H,
    G,
    T,
    S,
    scale,
    factor,
    PAIR: tl.constexpr,
    MASKED: tl.constexpr,
    AHEAD: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Compute the gradient of one block of queries of one head, q_grad [B, maps H, T, HEAD_DIM]."""
    blocks = tl.cdiv(T, ROWS)
    m = (blocks - 1 - tl.program_id(0) % blocks) * ROWS
    bh = tl.program_id(0) // blocks
    b, h = tl.cast(bh // H, tl.int64), bh % H
    group = h // (H // G)
    MAPS: tl.constexpr = 2 if PAIR else 1
    q += b * q_batch + tl.cast(MAPS * h, tl.int64) * q_head
    k += b * k_batch + tl.cast(MAPS * group, tl.int64) * k_head
    v += b * v_batch + tl.cast(group, tl.int64) * v_head
    grad += b * grad_batch + tl.cast(h, tl.int64) * grad_head
    if MASKED:
        mask += b * mask_batch
    q1 = load_rows(q, m, q_row, T, ROWS, HEAD_DIM, D, True)
    q2 = load_rows(q + q_head, m, q_row, T, ROWS, HEAD_DIM, D, True) if PAIR else q1
    g = load_rows(grad, m, grad_row, T, ROWS, VALUE_DIM, E, True)
    zeros = tl.zeros([ROWS, D], tl.float32)
    row = tl.cast(bh, tl.int64) * T
    state = (zeros, zeros)
    if MASKED:
        whole, stop = 0, S
    else:
        whole = (m + S - T) // KEYS * KEYS  # all queries see all keys before it
        stop = tl.minimum(S, m + ROWS + S - T)
    # The keys that need a check come first, and there is at least one. If both loops could be
    # empty, the assembler would serialize the multiplications. All queries see a key of the
    # first tile.
    tl.assume(whole < stop)
    state = _add_keys(
        state,
        q1,
        q2,
        k,
        k_head,
        k_row,
        v,
        v_row,
        g,
        statistics + row * 2 * MAPS,
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
        AHEAD,
        True,
        HEAD_DIM,
        VALUE_DIM,
        D,
        E,
        ROWS,
        KEYS,
    )
    if not MASKED:
        state = _add_keys(
            state,
            q1,
            q2,
            k,
            k_head,
            k_row,
            v,
            v_row,
            g,
            statistics + row * 2 * MAPS,
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
            AHEAD,
            False,
            HEAD_DIM,
            VALUE_DIM,
            D,
            E,
            ROWS,
            KEYS,
        )
    q1_grad, q2_grad = state
    q_grad += MAPS * row * HEAD_DIM
    store_rows(q_grad, q1_grad * scale, m, HEAD_DIM, T, ROWS, HEAD_DIM, D)
    if PAIR:
        other = q_grad + tl.cast(T, tl.int64) * HEAD_DIM
        store_rows(other, q2_grad * (-tl.load(lam) * scale), m, HEAD_DIM, T, ROWS, HEAD_DIM, D)
