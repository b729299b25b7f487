"""The backward kernels: gradients of queries, keys and values from each row's log-sum-exp.

With A = A1 - lam A2, P = dO V' and D_i = rowsum(dO * O_i), the gradients of the scores are
A1 * (P - D_1) and -lam A2 * (P - D_2), and that of lam is -sum(D_2). Of products of T x T x d, with
values of 2d: `keys` takes 2 for the maps, 2 each for P and dV, 2 for dK, and ATOMIC 2 for dQ, which
it then adds in the order that the scheduler likes; `queries` writes dQ alone, and repeats its bits.
Names and suffixes as in `forward`.
"""

import triton
import triton.language as tl

from difftransformer.models.kernels.fused.pieces import (
    load_numbers,
    load_rows,
    seen_keys,
    store_rows,
)


@triton.jit
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
def _tile(
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
    lse,
    sums,
    map_stride,
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
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Go over the queries from ``start`` to ``stop``; unchecked all of them see all KEYS keys.

    Rows past T are read as zeros, and as such add nothing.
    """
    k1_grad, k2_grad, v_grad = state
    for m in range(start, stop, ROWS):
        q1 = load_rows(q, m, q_row, T, ROWS, HEAD_DIM, D, True)
        q2 = load_rows(q + q_head, m, q_row, T, ROWS, HEAD_DIM, D, True) if PAIR else q1
        g = load_rows(grad, m, grad_row, T, ROWS, VALUE_DIM, E, True)
        seen = 0
        if CHECK:
            seen = seen_keys(mask, mask_row, mask_column, m, n, T, S, ROWS, KEYS, MASKED)
        weights, scores1, scores2 = _tile(
            q1, q2, k1, k2, value, g, lse, sums, map_stride, lam, seen, m, T, factor,
            PAIR, CHECK, ROWS,
        )
        v_grad = tl.dot(tl.trans(weights.to(g.dtype)), g, v_grad)
        k1_grad = tl.dot(tl.trans(scores1), q1, k1_grad)
        if ATOMIC:
            _add_rows(q_grad, tl.dot(scores1, k1) * scale, m, T, ROWS, HEAD_DIM, D)
        if PAIR:
            k2_grad = tl.dot(tl.trans(scores2), q2, k2_grad)
            if ATOMIC:
                other = q_grad + tl.cast(T, tl.int64) * HEAD_DIM
                _add_rows(other, tl.dot(scores2, k2) * scale, m, T, ROWS, HEAD_DIM, D)
    return k1_grad, k2_grad, v_grad


@triton.jit
def _add_rows(
    base, values, start, end, COUNT: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    rows, columns = tl.arange(0, COUNT), tl.arange(0, BLOCK)
    at = base + tl.cast(start, tl.int64) * WIDTH + rows[:, None] * WIDTH + columns
    inside = (start + rows < end)[:, None] & (columns < WIDTH)[None, :]
    tl.atomic_add(at, values, mask=inside, sem="relaxed")


@triton.jit
def keys(
    q,
    k,
    v,
    lam,
    mask,
    grad,
    lse,
    sums,
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
    B,
    H,
    G,
    T,
    S,
    scale,
    factor,
    PAIR: tl.constexpr,
    MASKED: tl.constexpr,
    ATOMIC: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Gradients of one block of keys and values of one key/value head, of all heads that read it.

    ATOMIC: adds its part to q_grad, [B, maps H, T, HEAD_DIM] in float32. Gradients are contiguous.
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
    map_stride = tl.cast(B * H, tl.int64) * T
    for h in range(group * (H // G), (group + 1) * (H // G)):
        row = (b * H + h) * T
        q_h, grad_h = q + tl.cast(MAPS * h, tl.int64) * q_head, grad + tl.cast(h, tl.int64) * grad_head
        q_grad_h = q_grad + MAPS * row * HEAD_DIM
        state = _add_queries(
            state, q_h, q_head, q_row, k1, k2, value, grad_h, grad_row, q_grad_h, lse + row,
            sums + row, map_stride, lam_value, mask, mask_row, mask_column, first, whole, n, T, S,
            scale, factor, PAIR, MASKED, True, ATOMIC, HEAD_DIM, VALUE_DIM, D, E, ROWS, KEYS,
        )
        if not MASKED:
            state = _add_queries(
                state, q_h, q_head, q_row, k1, k2, value, grad_h, grad_row, q_grad_h, lse + row,
                sums + row, map_stride, lam_value, mask, mask_row, mask_column, whole, T, n, T, S,
                scale, factor, PAIR, MASKED, False, ATOMIC, HEAD_DIM, VALUE_DIM, D, E, ROWS, KEYS,
            )
    k1_grad, k2_grad, values_grad = state
    place = (b * G + group) * S
    k_grad += MAPS * place * HEAD_DIM
    store_rows(k_grad, k1_grad * scale, n, HEAD_DIM, S, KEYS, HEAD_DIM, D)
    if PAIR:
        other = k_grad + tl.cast(S, tl.int64) * HEAD_DIM
        store_rows(other, k2_grad * scale, n, HEAD_DIM, S, KEYS, HEAD_DIM, D)
    store_rows(v_grad + place * VALUE_DIM, values_grad, n, VALUE_DIM, S, KEYS, VALUE_DIM, E)


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
    lse,
    sums,
    map_stride,
    lam,
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
    q1_grad, q2_grad = state
    for n in range(start, stop, KEYS):
        k1 = load_rows(k, n, k_row, S, KEYS, HEAD_DIM, D, CHECK)
        k2 = load_rows(k + k_head, n, k_row, S, KEYS, HEAD_DIM, D, CHECK) if PAIR else k1
        value = load_rows(v, n, v_row, S, KEYS, VALUE_DIM, E, CHECK)
        seen = 0
        if CHECK:
            seen = seen_keys(mask, mask_row, mask_column, m, n, T, S, ROWS, KEYS, MASKED)
        _, scores1, scores2 = _tile(
            q1, q2, k1, k2, value, g, lse, sums, map_stride, lam, seen, m, T, factor,
            PAIR, CHECK, ROWS,
        )
        q1_grad = tl.dot(scores1, k1, q1_grad)
        if PAIR:
            q2_grad = tl.dot(scores2, k2, q2_grad)
    return q1_grad, q2_grad


@triton.jit
def queries(
    q,
    k,
    v,
    lam,
    mask,
    grad,
    lse,
    sums,
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
    B,
    H,
    G,
    T,
    S,
    scale,
    factor,
    PAIR: tl.constexpr,
    MASKED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Gradient of one block of queries of one head, q_grad [B, maps H, T, HEAD_DIM]."""
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
    zeros, lam_value = tl.zeros([ROWS, D], tl.float32), 1.0
    if PAIR:
        lam_value = tl.load(lam)
    row = tl.cast(bh, tl.int64) * T
    map_stride = tl.cast(B * H, tl.int64) * T
    state = (zeros, zeros)
    if MASKED:
        whole, stop = 0, S
    else:
        whole = (m + S - T + 1) // KEYS * KEYS
        stop = tl.minimum(S, m + ROWS + S - T)
        state = _add_keys(
            state, q1, q2, k, k_head, k_row, v, v_row, g, lse + row, sums + row, map_stride,
            lam_value, mask, mask_row, mask_column, m, 0, whole, T, S, factor,
            PAIR, MASKED, False, HEAD_DIM, VALUE_DIM, D, E, ROWS, KEYS,
        )
    state = _add_keys(
        state, q1, q2, k, k_head, k_row, v, v_row, g, lse + row, sums + row, map_stride,
        lam_value, mask, mask_row, mask_column, m, whole, stop, T, S, factor,
        PAIR, MASKED, True, HEAD_DIM, VALUE_DIM, D, E, ROWS, KEYS,
    )
    q1_grad, q2_grad = state
    q_grad += MAPS * row * HEAD_DIM
    store_rows(q_grad, q1_grad * scale, m, HEAD_DIM, T, ROWS, HEAD_DIM, D)
    if PAIR:
        other = q_grad + tl.cast(T, tl.int64) * HEAD_DIM
        store_rows(other, q2_grad * scale, m, HEAD_DIM, T, ROWS, HEAD_DIM, D)
