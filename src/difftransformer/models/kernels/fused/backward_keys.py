"""The backward kernel of keys and values, optionally also of queries (with atomic sums).

Of matrix multiplications of T x T x d it takes, with values of width 2d, 2 for the maps, 2 for
dO V', 2 for dV and 2 for dK. With ATOMIC it takes 2 more for dQ, which it adds in an order that is
not fixed. OF_KEYS and OF_VALUES say whether it computes the gradients of keys and of values;
products that neither needs are skipped. Names and suffixes are those of `forward` and `backward`.
"""

import triton
import triton.language as tl

from difftransformer.models.kernels.fused.backward import maps, of_scores, scores_with
from difftransformer.models.kernels.fused.pieces import (
    SIZES,
    load_pairs,
    load_rows,
    seen_keys,
    store_rows,
)


@triton.jit
def _add_queries(
    state,
    q,
    q_head,
    q_row,
    k1,
    k2,
    value,
    grad,
    grad_row,
    q_grad,
    statistics,
    lam,
    mask,
    mask_row,
    mask_column,
    start,
    stop,
    n,
    T,
    S,
    scale,
    factor,
    PAIR: tl.constexpr,
    MASKED: tl.constexpr,
    CHECK: tl.constexpr,
    ATOMIC: tl.constexpr,
    OF_KEYS: tl.constexpr,
    OF_VALUES: tl.constexpr,
    AHEAD: tl.constexpr,
    COPIES: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Add the contributions of the queries from ``start`` to ``stop`` to the gradients.

    Without CHECK, all KEYS keys must be visible to all of these queries.

    Rows past T are read as zeros, so they add nothing.
    """
    k1_grad, k2_grad, v_grad = state
    MAPS: tl.constexpr = 2 if PAIR else 1
    ahead1 = scores_with(k1, q, start, q_row, T, ROWS, HEAD_DIM, D) if AHEAD else 0.0
    ahead2 = scores_with(k2, q + q_head, start, q_row, T, ROWS, HEAD_DIM, D) if AHEAD > 1 else 0.0
    for m in range(start, stop, ROWS):
        q1 = load_rows(q, m, q_row, T, ROWS, HEAD_DIM, D, True)
        q2 = load_rows(q + q_head, m, q_row, T, ROWS, HEAD_DIM, D, True) if PAIR else q1
        g = load_rows(grad, m, grad_row, T, ROWS, VALUE_DIM, E, True)
        seen = 0
        if CHECK:
            seen = seen_keys(mask, mask_row, mask_column, m, n, T, S, ROWS, KEYS, MASKED, 0)
        # With two maps this loads the lse of both, with one map its lse and its D_1.
        lse1, second = load_pairs(statistics, m, 2 * MAPS, T, ROWS, COPIES)
        kept, subtracted, p, ahead1, ahead2 = maps(
            k1,
            k2,
            q1,
            q2,
            value,
            g,
            lse1,
            second,
            ahead1,
            ahead2,
            q,
            q_head,
            q_row,
            m + ROWS,
            T,
            seen,
            factor,
            PAIR,
            CHECK,
            AHEAD,
            0,
            ROWS,
            HEAD_DIM,
            D,
        )
        if OF_VALUES:
            both = kept - lam * subtracted if PAIR else kept
            v_grad = tl.dot(both.to(g.dtype), g, v_grad)
        sum1, sum2 = second, second
        if PAIR:
            sum1, sum2 = load_pairs(statistics + MAPS, m, 2 * MAPS, T, ROWS, COPIES)
        if OF_KEYS:
            scores = of_scores(kept, p, sum1, 0).to(q1.dtype)
            k1_grad = tl.dot(scores, q1, k1_grad)
            if ATOMIC:
                _add_rows(q_grad, tl.dot(tl.trans(scores), k1) * scale, m, T, ROWS, HEAD_DIM, D)
        if OF_KEYS and PAIR:
            scores = of_scores(subtracted, p, sum2, 0).to(q1.dtype)
            k2_grad = tl.dot(scores, q2, k2_grad)
            if ATOMIC:
                other = q_grad + tl.cast(T, tl.int64) * HEAD_DIM
                more = tl.dot(tl.trans(scores), k2) * (-lam * scale)
                _add_rows(other, more, m, T, ROWS, HEAD_DIM, D)
    return k1_grad, k2_grad, v_grad


@triton.jit
def _add_rows(
    base, values, start, end, COUNT: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    rows, columns = tl.arange(0, COUNT), tl.arange(0, BLOCK)
    at = base + tl.cast(start, tl.int64) * WIDTH + rows[:, None] * WIDTH + columns
    inside = (start + rows < end)[:, None] & (columns < WIDTH)[None, :]
    tl.atomic_add(at, values, mask=inside, sem="relaxed")


@triton.jit(do_not_specialize=SIZES)
def keys(
    q,
    k,
    v,
    lam,
    mask,
    grad,
    statistics,
    q_grad,
    k_grad,
    v_grad,
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
    ATOMIC: tl.constexpr,
    OF_KEYS: tl.constexpr,
    OF_VALUES: tl.constexpr,
    AHEAD: tl.constexpr,
    COPIES: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Compute the gradients of one block of keys and values of one key/value head.

    They are summed over all heads that share the key/value head, and are contiguous. With ATOMIC
    the block's part of q_grad, [B, maps H, T, HEAD_DIM] in float32, is added, too.
    """
    blocks = tl.cdiv(S, KEYS)
    n, bg = tl.program_id(0) % blocks * KEYS, tl.program_id(0) // blocks
    b, group = tl.cast(bg // G, tl.int64), bg % G
    MAPS: tl.constexpr = 2 if PAIR else 1
    k += b * k_batch + tl.cast(MAPS * group, tl.int64) * k_head
    v += b * v_batch + tl.cast(group, tl.int64) * v_head
    q += b * q_batch
    grad += b * grad_batch
    if MASKED:
        mask += b * mask_batch
    k1 = load_rows(k, n, k_row, S, KEYS, HEAD_DIM, D, True)
    k2 = load_rows(k + k_head, n, k_row, S, KEYS, HEAD_DIM, D, True) if PAIR else k1
    value = load_rows(v, n, v_row, S, KEYS, VALUE_DIM, E, True)
    k_zeros, lam_value = tl.zeros([KEYS, D], tl.float32), 1.0
    if PAIR:
        lam_value = tl.load(lam)
    state = (k_zeros, k_zeros, tl.zeros([KEYS, E], tl.float32))
    if MASKED:
        first, whole = 0, T
    else:
        first = tl.maximum(0, n - (S - T)) // ROWS * ROWS
        whole = tl.maximum(0, tl.cdiv(n + KEYS - 1 - (S - T), ROWS) * ROWS)
        # Keys past S would have the weight exp2(-lse), which may be infinite.
        whole = tl.where(n + KEYS > S, T, tl.minimum(whole, T))
    # Without hoisting of loop invariants: they would take registers that the inner loops need.
    for h in tl.range(group * (H // G), (group + 1) * (H // G), disable_licm=True):
        row = (b * H + h) * T
        q_h, grad_h = (
            q + tl.cast(MAPS * h, tl.int64) * q_head,
            grad + tl.cast(h, tl.int64) * grad_head,
        )
        q_grad_h = q_grad + MAPS * row * HEAD_DIM
        state = _add_queries(
            state,
            q_h,
            q_head,
            q_row,
            k1,
            k2,
            value,
            grad_h,
            grad_row,
            q_grad_h,
            statistics + row * 2 * MAPS,
            lam_value,
            mask,
            mask_row,
            mask_column,
            first,
            whole,
            n,
            T,
            S,
            scale,
            factor,
            PAIR,
            MASKED,
            True,
            ATOMIC,
            OF_KEYS,
            OF_VALUES,
            AHEAD,
            COPIES,
            HEAD_DIM,
            VALUE_DIM,
            D,
            E,
            ROWS,
            KEYS,
        )
        if not MASKED:
            state = _add_queries(
                state,
                q_h,
                q_head,
                q_row,
                k1,
                k2,
                value,
                grad_h,
                grad_row,
                q_grad_h,
                statistics + row * 2 * MAPS,
                lam_value,
                mask,
                mask_row,
                mask_column,
                whole,
                T,
                n,
                T,
                S,
                scale,
                factor,
                PAIR,
                MASKED,
                False,
                ATOMIC,
                OF_KEYS,
                OF_VALUES,
                AHEAD,
                COPIES,
                HEAD_DIM,
                VALUE_DIM,
                D,
                E,
                ROWS,
                KEYS,
            )
    k1_sum, k2_sum, v_sum = state
    place = (b * G + group) * S
    if OF_KEYS:
        k_grad += MAPS * place * HEAD_DIM
        store_rows(k_grad, k1_sum * scale, n, HEAD_DIM, S, KEYS, HEAD_DIM, D)
    if OF_KEYS and PAIR:
        other = k_grad + tl.cast(S, tl.int64) * HEAD_DIM
        store_rows(other, k2_sum * (-lam_value * scale), n, HEAD_DIM, S, KEYS, HEAD_DIM, D)
    if OF_VALUES:
        store_rows(v_grad + place * VALUE_DIM, v_sum, n, VALUE_DIM, S, KEYS, VALUE_DIM, E)
