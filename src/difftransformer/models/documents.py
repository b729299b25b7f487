"""Masks of documents that are packed into one row: no position attends to another document.

Shapes: B = batch, T = positions.
"""

import torch
from torch import Tensor

from difftransformer.errors import ConfigError
from difftransformer.models.attention.base import Cache
from difftransformer.models.kernels.eager import causal_mask


def document_mask(
    segment_ids: Tensor, tokens: tuple[int, int], mask: Tensor | None, cache: Cache | None
) -> Tensor:
    """Return which keys each query sees, bool [B or 1, 1, T, T]: earlier ones of its document.

    Args:
        segment_ids: integers [B or 1, T]; positions with equal ids are one document.
        tokens: B and T.
        mask: Another mask, which excludes this one.
        cache: A key/value cache, which holds no documents.

    Raises:
        ConfigError: The ids have another shape or type, or there is a mask or a cache.
    """
    B, T = tokens
    if segment_ids.is_floating_point() or segment_ids.shape not in ((1, T), (B, T)):
        raise ConfigError(
            f"segment_ids are {segment_ids.dtype} {[*segment_ids.shape]}, expected integers "
            f"[{B} or 1, {T}], one number per document"
        )
    if mask is not None:
        raise ConfigError("segment_ids and mask exclude each other: pass the one or the other")
    if cache is not None:
        raise ConfigError(
            "packed documents (segment_ids, position_ids that restart, cu_seq_lens) take no cache: "
            "pass use_cache=False, or each document in a row of its own"
        )
    same = segment_ids[:, None, :, None] == segment_ids[:, None, None, :]
    return same & causal_mask(T, T, segment_ids.device)


def segment_ids_from_eos(tokens: Tensor, end: int) -> Tensor:
    """Return the segment ids [B, T] of packed text [B, T] whose documents close with token `end`.

    The closing token belongs to the document that it closes.
    """
    closing = (tokens == end).long()
    return closing.cumsum(dim=-1) - closing


def unmask_unattended(mask: Tensor) -> Tensor:
    """Let queries of a mask [*, 1, T, S] that may look nowhere, as padding, look at themselves.

    A softmax over no key is NaN.
    """
    T, S = mask.shape[-2:]
    itself = torch.ones(T, S, dtype=torch.bool, device=mask.device).tril(S - T).triu(S - T)
    return mask | (itself & ~mask.any(dim=-1, keepdim=True))
