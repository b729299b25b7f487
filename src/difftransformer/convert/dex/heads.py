"""Selection of the heads that Dex changes, by attention entropy or importance.

The paper selects the half of each layer's heads with the highest entropy, or the lowest importance
(section 3.2), but states neither the data nor the formulas. Ours: the entropy of a row of attention
weights, mean over the rows of the batches; and the squared gradient of a gate on the head's output,
mean over sequences (Michel et al. 2019).

Shapes: B = sequences, T = positions, H = heads, e = width of a head.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from difftransformer.convert.attention_hooks import head_gate_grads
from difftransformer.convert.dex.tuner import attention_modules, num_heads, require_projections
from difftransformer.convert.hf_attention.maps import CapturedAttention
from difftransformer.convert.hf_attention.registry import reader
from difftransformer.errors import ConfigError
from difftransformer.models.differential import HeadChoice

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_BLOCK = 64
"""Number of queries whose attention weights are materialized at a time."""


def select_heads(
    model: "PreTrainedModel",
    batches: Iterable[Tensor],
    by: HeadChoice = "entropy",
    share: float = 0.5,
) -> dict[str, list[int]]:
    """Select the heads of every layer that Dex is to change, by their attention on some text.

    Args:
        model: A decoder whose attention has k_proj, v_proj and o_proj.
        batches: Token ids, [B, T] each; the selection is deterministic.
        by: "entropy" selects the highest, "low_entropy" the lowest, "importance" the least
            important.
        share: Share of each layer's heads to select, rounded; at least one head is selected.

    Returns:
        Heads by layer, for `DexConfig.heads`.

    Raises:
        ConfigError: The share is not in (0, 1], there are no batches, or the model's attention is
            not supported.
    """
    require_projections(model)
    if not 0 < share <= 1:
        raise ConfigError(f"share: {share} of the heads; it must be above 0 and at most 1")
    scores = head_importance(model, batches) if by == "importance" else head_entropy(model, batches)
    number = max(round(share * scores.shape[1]), 1)
    order = scores.argsort(dim=1, descending=by == "entropy", stable=True)[:, :number]
    return {str(layer): sorted(heads) for layer, heads in enumerate(order.tolist())}


@torch.no_grad()
def head_entropy(model: "PreTrainedModel", batches: Iterable[Tensor]) -> Tensor:
    """Return each head's mean attention entropy in nats over queries, [layers, H] in float64."""
    sums = torch.zeros(len(attention_modules(model)), num_heads(model), dtype=torch.float64)
    rows = 0

    def add(captured: CapturedAttention) -> None:
        for block in captured.iter_blocks(_BLOCK):  # weights: [B, H, b, start + b]
            entropy = torch.special.entr(block.weights.double())
            sums[captured.layer] += entropy.sum((0, 2, 3)).cpu()

    with _training(model, False):
        for batch in batches:
            with reader(model)(model, add):
                model.base_model(input_ids=batch.to(model.device), use_cache=False)
            rows += batch.numel()
    _require_batches(rows)
    return sums / rows


def head_importance(model: "PreTrainedModel", batches: Iterable[Tensor]) -> Tensor:
    """Return each head's mean squared gradient of a gate on its output, [layers, H] in float64.

    The loss is the mean next-token cross-entropy of a sequence.
    """
    projections = [module.get_submodule("o_proj") for module in attention_modules(model)]
    sums = torch.zeros(len(projections), num_heads(model), dtype=torch.float64)
    sequences = 0
    # One sequence at a time: the logits of a batch would be the largest tensor of all.
    for sequence in (tokens for batch in batches for tokens in torch.split(batch, 1)):
        tokens = sequence.to(model.device)

        def losses(tokens: Tensor = tokens) -> Tensor:
            logits = model(input_ids=tokens, use_cache=False).logits[:, :-1].float()
            return F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none").mean(1)

        with _training(model, False):
            grads = head_gate_grads(projections, 1, num_heads(model), losses)
        sums += grads.square().sum(0)
        sequences += 1
    _require_batches(sequences)
    return sums / sequences


@contextmanager
def _training(model: nn.Module, mode: bool) -> Iterator[None]:
    previous = model.training
    model.train(mode)
    try:
        yield
    finally:
        model.train(previous)


def _require_batches(count: int) -> None:
    if count == 0:
        raise ConfigError("heads cannot be selected without text: pass at least one batch")
