"""Masks and document boundaries as transformers passes them, in the form that our models take.

Shapes: B = batch, T = new positions, S = all positions including cached ones.
"""

from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from transformers.masking_utils import find_packed_sequence_indices

from difftransformer.errors import BackendError, ConfigError
from difftransformer.models.documents import unmask_unattended
from difftransformer.models.kernels.eager import causal_mask

MASKED = -1e4
"""An additive mask of this or less leaves a key out: its weight is 0 in any precision."""


class DocumentBoundaries(NamedTuple):
    """Document boundaries of packed rows, besides those that ``position_ids`` imply.

    Attributes:
        cu_seq_lens_q: [N + 1] cumulative lengths of documents, over all rows one after the other.
        cu_seq_lens_k: The same for keys; where the two differ, the boundaries of both hold.
        seq_idx: [B or 1, T] integers, the document of each position.
        segment_ids: The same, as our own models call it.
    """

    cu_seq_lens_q: Tensor | None
    cu_seq_lens_k: Tensor | None
    seq_idx: Tensor | None
    segment_ids: Tensor | None

    @classmethod
    def pop_from(cls, options: dict[str, Any]) -> Self:
        """Take them out of the options of a call, with the longest lengths, which tell no more."""
        for name in ("max_length_q", "max_length_k"):
            options.pop(name, None)
        return cls(*(options.pop(name, None) for name in cls._fields))


def segment_ids(
    boundaries: DocumentBoundaries,
    position_ids: Tensor | None,
    tokens: tuple[int, int],
    padded: bool,
) -> Tensor | None:
    """Return the document of each position, [B or 1, T], or None where a row is one document.

    Positions that do not ascend by one begin a document, as transformers reads them
    (`find_packed_sequence_indices`) where there is no ``attention_mask``: left padding restarts
    positions, too. Where boundaries arrive in several ways, all of them hold.

    Args:
        boundaries: Those that are given.
        position_ids: [B or 1, T] or [T].
        tokens: B and T.
        padded: Whether there is an ``attention_mask``.

    Raises:
        ConfigError: The boundaries do not fit the tokens, or there is an ``attention_mask``, too.
    """
    if padded and any(one is not None for one in boundaries):
        raise ConfigError(
            f"attention_mask excludes {', '.join(DocumentBoundaries._fields)}: packed rows have no "
            "padding; pass the one or the other"
        )
    B, T = tokens
    found: list[Tensor] = []
    if position_ids is not None:
        _require_shape("position_ids", position_ids, B, T)
        if not padded:
            packed = find_packed_sequence_indices(position_ids.view(-1, T).expand(B, -1))
            found += [] if packed is None else [packed]
    for name, given in boundaries._asdict().items():
        if given is None:
            continue
        if name.startswith("cu_seq_lens"):
            found.append(_by_lengths(name, given, B, T))
        else:
            _require_shape(name, given, B, T)
            found.append(given.view(-1, T))
    if not found:
        return None
    starts = torch.zeros(B, T, dtype=torch.bool, device=found[0].device)
    for ids in found:
        starts[:, 1:] |= ids.diff(dim=-1) != 0
    return starts.cumsum(dim=-1)


def _require_shape(name: str, given: Tensor, B: int, T: int) -> None:
    if given.is_floating_point() or given.shape not in ((T,), (1, T), (B, T)):
        raise ConfigError(
            f"{name} are {given.dtype} {[*given.shape]}, expected integers [{B} or 1, {T}]"
        )


def _by_lengths(name: str, lengths: Tensor, B: int, T: int) -> Tensor:
    good = lengths.ndim == 1 and len(lengths) > 1 and not lengths.is_floating_point()
    if not good or lengths[0] != 0 or lengths[-1] != B * T or (lengths.diff() < 0).any():
        raise ConfigError(
            f"{name} are {lengths.tolist()}, expected cumulative lengths from 0 to the "
            f"{B} x {T} tokens of the batch"
        )
    positions = torch.arange(B * T, device=lengths.device, dtype=lengths.dtype).view(B, T)
    return torch.searchsorted(lengths[1:].contiguous(), positions, right=True)


def visible(attention_mask: Tensor, tokens: tuple[int, int], past: int) -> Tensor | None:
    """Return which keys each query sees, bool [B or 1, 1, T, S]; None for causal attention to all.

    Args:
        attention_mask: [B, S], 0 at padding on either side; or [B or 1, T, S] or [B or 1, 1, T, S],
            which alone decides: bool, True = may attend, or additive floats, 0 or very negative.
        tokens: B and T.
        past: Cached positions.

    Raises:
        ConfigError: It is anything else.
    """
    B, T = tokens
    S = past + T
    if not isinstance(attention_mask, Tensor):
        raise ConfigError(f"attention_mask is a {type(attention_mask).__name__}, expected a tensor")
    if attention_mask.ndim < 3:
        _require_padding(attention_mask, B, S)
        if bool(attention_mask.all()):
            return None
        seen = causal_mask(T, S, attention_mask.device)
        # A padding position sees itself, so that no row of the softmax is empty (NaN).
        itself = seen.triu(past)
        return seen & attention_mask[:, None, None].bool() | itself
    mask = attention_mask.unsqueeze(1) if attention_mask.ndim == 3 else attention_mask
    if mask.shape not in ((1, 1, T, S), (B, 1, T, S)):
        raise ConfigError(
            f"attention_mask has shape {[*attention_mask.shape]}, expected [{B}, {S}] or, the same "
            f"for all heads, [{B} or 1, 1, {T}, {S}]"
        )
    if mask.is_floating_point():
        masked = mask <= MASKED
        if not bool((masked | (mask == 0)).all()):
            raise ConfigError(
                "attention_mask adds to the logits: a mask of floats holds 0 and -inf alone, since "
                "no variant takes biases"
            )
        mask = ~masked
    elif mask.dtype != torch.bool:
        raise ConfigError(
            f"attention_mask is {mask.dtype} {[*attention_mask.shape]}: a mask by query is "
            "torch.bool (True = may attend) or additive floats; convert it"
        )
    return unmask_unattended(mask)


def _require_padding(mask: Tensor, B: int, S: int) -> None:
    if mask.shape not in ((1, S), (B, S)) or not bool(((mask == 0) | (mask == 1)).all()):
        raise ConfigError(
            f"attention_mask is {mask.dtype} {[*mask.shape]}, expected [{B}, {S}], 1 at each token "
            "(cached ones included) and 0 at padding"
        )


def require_masks(backend: str) -> None:
    """Refuse a backend that takes no masks.

    Raises:
        BackendError: It is flash_attn.
    """
    if backend == "flash_attn":
        raise BackendError(
            "flash attention takes no padding, masks or packed documents here; use batches of "
            "whole sequences, or attn_implementation sdpa"
        )
