"""Convert transformers' masks and document boundaries to those of our models.

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
"""Additive mask values of at most this mask a key: its weight is 0 in any precision."""


class DocumentBoundaries(NamedTuple):
    """Document boundaries of packed rows that are not implied by ``position_ids``.

    Attributes:
        cu_seq_lens_q: Cumulative lengths [N + 1] of the N documents of all rows.
        cu_seq_lens_k: Cumulative lengths for keys; if the two differ, both sets of boundaries hold.
        seq_idx: [B or 1, T] integers, the document of each position.
        segment_ids: The same as ``seq_idx``, under the name used by our models.
    """

    cu_seq_lens_q: Tensor | None
    cu_seq_lens_k: Tensor | None
    seq_idx: Tensor | None
    segment_ids: Tensor | None

    @classmethod
    def pop_from(cls, options: dict[str, Any]) -> Self:
        """Return the boundaries in a call's options, and remove them from the options.

        The redundant maximum lengths are removed, too.
        """
        for name in ("max_length_q", "max_length_k"):
            options.pop(name, None)
        return cls(*(options.pop(name, None) for name in cls._fields))


def segment_ids(
    boundaries: DocumentBoundaries,
    position_ids: Tensor | None,
    tokens: tuple[int, int],
    padded: bool,
) -> Tensor | None:
    """Return the document of each position, [B or 1, T], or None if each row is one document.

    Without an ``attention_mask``, a position that does not ascend by one starts a document, as in
    transformers (`find_packed_sequence_indices`); with one, it may be left padding. If boundaries
    are passed in several ways, all of them hold.

    Args:
        boundaries: Explicit boundaries.
        position_ids: Positions [B or 1, T] or [T], or None.
        tokens: Batch size B and length T.
        padded: Whether an ``attention_mask`` is passed.

    Raises:
        ConfigError: The boundaries do not fit the tokens, or exclude the ``attention_mask``.
    """
    if padded and any(boundary is not None for boundary in boundaries):
        raise ConfigError(
            f"attention_mask excludes {', '.join(DocumentBoundaries._fields)}: packed rows have no "
            "padding; pass only one of them"
        )
    B, T = tokens
    segments: list[Tensor] = []
    if position_ids is not None:
        _require_shape("position_ids", position_ids, B, T)
        if not padded:
            packed = find_packed_sequence_indices(position_ids.view(-1, T).expand(B, -1))
            segments += [] if packed is None else [packed]
    for name, boundary in boundaries._asdict().items():
        if boundary is None:
            continue
        if name.startswith("cu_seq_lens"):
            segments.append(_from_cu_seqlens(name, boundary, B, T))
        else:
            _require_shape(name, boundary, B, T)
            segments.append(boundary.view(-1, T))
    if not segments:
        return None
    starts = torch.zeros(B, T, dtype=torch.bool, device=segments[0].device)
    for ids in segments:
        starts[:, 1:] |= ids.diff(dim=-1) != 0
    return starts.cumsum(dim=-1)


def _require_shape(name: str, tensor: Tensor, B: int, T: int) -> None:
    if tensor.is_floating_point() or tensor.shape not in ((T,), (1, T), (B, T)):
        raise ConfigError(
            f"{name} are {tensor.dtype} {[*tensor.shape]}, expected integers [{B} or 1, {T}]"
        )


def _from_cu_seqlens(name: str, cu_seqlens: Tensor, B: int, T: int) -> Tensor:
    valid = cu_seqlens.ndim == 1 and len(cu_seqlens) > 1 and not cu_seqlens.is_floating_point()
    if not valid or cu_seqlens[0] != 0 or cu_seqlens[-1] != B * T or (cu_seqlens.diff() < 0).any():
        raise ConfigError(
            f"{name} are {cu_seqlens.tolist()}, expected cumulative lengths from 0 to the "
            f"{B} x {T} tokens of the batch"
        )
    positions = torch.arange(B * T, device=cu_seqlens.device, dtype=cu_seqlens.dtype).view(B, T)
    return torch.searchsorted(cu_seqlens[1:].contiguous(), positions, right=True)


def to_bool_mask(attention_mask: Tensor, tokens: tuple[int, int], past: int) -> Tensor | None:
    """Return a transformers mask in our form, bool [B or 1, 1, T, S], True = may attend.

    None stands for the causal mask.

    Args:
        attention_mask: [B, S], 0 at padding on either side; or the full mask [B or 1, T, S] or
            [B or 1, 1, T, S]: bool, True = may attend, or additive floats, 0 or very negative.
        tokens: Batch size B and number of new positions T.
        past: Number of cached positions.

    Raises:
        ConfigError: Any other mask.
    """
    B, T = tokens
    S = past + T
    if not isinstance(attention_mask, Tensor):
        raise ConfigError(f"attention_mask is a {type(attention_mask).__name__}, expected a tensor")
    if attention_mask.ndim < 3:
        _require_padding(attention_mask, B, S)
        if bool(attention_mask.all()):
            return None
        causal = causal_mask(T, S, attention_mask.device)
        # A padding position attends to itself, so that no row of the softmax is empty (NaN).
        itself = causal.triu(past)
        return causal & attention_mask[:, None, None].bool() | itself
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
                "attention_mask is added to the logits: a float mask may hold only 0 and -inf, "
                "since no variant supports biases"
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
    """Check that an attention backend supports masks.

    Raises:
        BackendError: The backend is flash_attn, which supports none.
    """
    if backend == "flash_attn":
        raise BackendError(
            "flash attention supports no padding, masks or packed documents here; use unpadded "
            "batches, or attn_implementation sdpa"
        )
