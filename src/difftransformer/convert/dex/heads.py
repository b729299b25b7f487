"""Which heads Dex changes: by the entropy of their attention, or by how little they matter.

The paper takes the half of each layer's heads with the highest entropy, or with the lowest
importance (section 3.2), and says neither on what data nor how either is computed. Ours: the mean
over the rows of given batches of the entropy of a row of weights; and the mean over sequences of
the squared gradient of a gate on the head's output (Michel et al. 2019).

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
"""Queries whose rows are there at a time."""


def select_heads(
    model: "PreTrainedModel",
    batches: Iterable[Tensor],
    by: HeadChoice = "entropy",
    share: float = 0.5,
) -> dict[str, list[int]]:
    """Choose heads of every layer by what they do on some text.

    Args:
        model: A decoder whose attention has k_proj, v_proj and o_proj.
        batches: Token ids, [B, T] each; the same ones give the same choice.
        by: "entropy" takes the highest, "low_entropy" the lowest, "importance" the least important.
        share: Of each layer's heads, rounded, one at least.

    Returns:
        Heads by layer, as `DexConfig.heads` takes them.

    Raises:
        ConfigError: The share takes no head or more than all, there are no batches, or the model's
            attention cannot be adapted.
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
    """Mean entropy in nats of the rows of attention, [layers, H] in float64.

    Some rows at a time: the maps of a long sequence are never there as a whole.
    """
    sums = torch.zeros(len(attention_modules(model)), num_heads(model), dtype=torch.float64)
    rows = 0

    def add(maps: CapturedAttention) -> None:
        for block in maps.iter_blocks(_BLOCK):  # weights: [B, H, b, start + b]
            entropy = torch.special.entr(block.weights.double())
            sums[maps.layer] += entropy.sum((0, 2, 3)).cpu()

    with _training(model, False):
        for batch in batches:
            with reader(model)(model, add):
                model.base_model(input_ids=batch.to(model.device), use_cache=False)
            rows += batch.numel()
    _require_batches(rows)
    return sums / rows


def head_importance(model: "PreTrainedModel", batches: Iterable[Tensor]) -> Tensor:
    """Mean squared gradient of a gate on each head's output, [layers, H] in float64.

    The loss is a sequence's mean cross-entropy of the next token.
    """
    projections = [module.get_submodule("o_proj") for module in attention_modules(model)]
    sums = torch.zeros(len(projections), num_heads(model), dtype=torch.float64)
    sequences = 0
    # One by one: the logits of a batch would be the largest tensor that there is.
    for sequence in (one for batch in batches for one in torch.split(batch, 1)):
        tokens = sequence.to(model.device)

        def losses(tokens: Tensor = tokens) -> Tensor:
            logits = model(input_ids=tokens, use_cache=False).logits[:, :-1].float()
            return F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none").mean(1)

        with _training(model, False):
            slopes = head_gate_grads(projections, 1, num_heads(model), losses)
        sums += slopes.square().sum(0)
        sequences += 1
    _require_batches(sequences)
    return sums / sequences


@contextmanager
def _training(model: nn.Module, mode: bool) -> Iterator[None]:
    before = model.training
    model.train(mode)
    try:
        yield
    finally:
        model.train(before)


def _require_batches(found: int) -> None:
    if found == 0:
        raise ConfigError("heads cannot be chosen without text: give one batch at least")
