"""Attention masks of packed documents: no position attends to another document.

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
    """Return the mask for causal attention within documents, bool, True = may attend.

    Its shape is [B or 1, 1, T, T].

    Args:
        segment_ids: Integers [B or 1, T]; positions with equal ids are one document.
        tokens: Batch size B and length T.
        mask: Must be None: the two masks exclude each other.
        cache: Must be None: packed documents cannot be cached.

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
        raise ConfigError("segment_ids and mask exclude each other: pass only one of them")
    if cache is not None:
        raise ConfigError(
            "packed documents (segment_ids, position_ids that restart, cu_seq_lens) take no cache: "
            "pass use_cache=False, or one document per row"
        )
    same = segment_ids[:, None, :, None] == segment_ids[:, None, None, :]
    return same & causal_mask(T, T, segment_ids.device)


def segment_ids_from_eos(tokens: Tensor, eos: int) -> Tensor:
    """Return segment ids [B, T] of packed text [B, T]; each document ends with token ``eos``."""
    is_eos = (tokens == eos).long()
    return is_eos.cumsum(dim=-1) - is_eos


def unmask_unattended(mask: Tensor) -> Tensor:
    """Let fully masked queries, such as padding, attend to themselves in a mask [*, 1, T, S].

    A softmax over no key would be NaN.
    """
    T, S = mask.shape[-2:]
    itself = torch.ones(T, S, dtype=torch.bool, device=mask.device).tril(S - T).triu(S - T)
    return mask | (itself & ~mask.any(dim=-1, keepdim=True))
