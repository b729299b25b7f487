"""Effective attention (arXiv 2505.16333, equation 6, appendix F.3 and table 2).

Dex changes a head's output to O' = O (I - M) with O = A V, and no attention weights of the head
give O' exactly. The weights that come nearest are X = O' V^+ (V^+ is the pseudo-inverse of V).
Four kinds of weights are compared:

    weights           A
    projected         A V V^+: A after the projection alone, without Dex
    effective         O' V^+; equal to projected without Dex
    gradient_descent  the check of appendix F.3: steps of gradient descent on |X V - O'|^2 from A

With more positions than a head is wide, V V^+ is not the identity: it spreads A over all positions
and makes weights negative in any model. So base and adapted models are projected alike; only the
difference of their effective rows tells something about the adaptation.

Shapes: L = layers, H = heads, G = key/value heads, S = positions, e = width of a value.
"""

import numpy as np
import torch
from torch import Tensor

from difftransformer.convert.attention_hooks import find_output_projections
from difftransformer.convert.dex_weights import read_dex_weights
from difftransformer.evaluation.context import EvalContext, EvalResult, Metrics, per_item_scores
from difftransformer.evaluation.retrieval.prompts import open_builder
from difftransformer.evaluation.retrieval.regions import label_regions, region_shares
from difftransformer.evaluation.retrieval.settings import REGIONS, NeedleSetting
from difftransformer.evaluations.effective_attention.settings import (
    DESCENDED,
    EFFECTIVE,
    KINDS,
    LEARNING_RATE,
    PROJECTED,
    WEIGHTS,
    Suite,
    answer_name,
    negative_name,
)


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Return the answer's mean share of attention and the fraction of negative weights, by kind.

    Returns:
        For each kind of weights in KINDS: answer_{kind}, over all depths and by depth (_d{D}), the
        answer's share of the last token's absolute weights; negative_{kind}, the fraction of these
        weights below zero. Also prompts, their number. Shares have per-item scores by haystack,
        since prompts of all depths share a haystack.

    Raises:
        CheckpointError: The maps of a pretrained model cannot be read.
        ConfigError: A length has no room for the needles and the question.
        DataError: Held-out text or the tokenizer is missing.
    """
    scorer = context.scorer
    builder = open_builder(suite, context.dataset)
    projections = find_output_projections(scorer.model)
    dex = read_dex_weights(context.model, len(projections), projections[0].num_heads)
    (length,) = suite.contexts
    shape = (len(suite.depths), suite.samples)
    answers, negatives = ({kind: np.zeros(shape) for kind in KINDS} for _ in range(2))
    for index, depth in enumerate(suite.depths):
        for sample in range(suite.samples):
            prompt = builder.prompt(NeedleSetting(suite.needles, 1, length, depth), sample)
            ids = builder.token_ids(prompt.context + prompt.questions[0])
            regions = label_regions(prompt, len(ids))
            rows, values = (part.double() for part in scorer.last_attention(ids, suite.chunk))
            by_kind = effective(rows, values, None if dex is None else dex.matrices, suite)
            for kind, weights in by_kind.items():
                absolute = region_shares(weights.numpy(), regions)[0]
                answers[kind][index, sample] = absolute[..., REGIONS.index("answer")].mean()
                negatives[kind][index, sample] = float((weights < 0).double().mean())
    return _measured(suite, answers, negatives)


def effective(
    rows: Tensor, values: Tensor, matrices: Tensor | None, suite: Suite
) -> dict[str, Tensor]:
    """Return a prompt's attention weights of every kind in KINDS, float64 [L, H, S] each.

    Args:
        rows: Attention weights A of the last token, [L, H, S]: L layers, H heads, S positions.
        values: Values V, [L, G, S, e], with G value heads of width e.
        matrices: Dex's matrices M, [L, H, e, e]; None without Dex.
        suite: Settings with the number of gradient descent steps.
    """
    by_head = values.repeat_interleave(rows.shape[1] // values.shape[1], dim=1)  # [L, H, S, e]
    inverse = torch.linalg.pinv(by_head)  # [L, H, e, S]
    output = rows.unsqueeze(2) @ by_head  # [L, H, 1, e]
    target = output if matrices is None else output - output @ matrices
    descended = rows.unsqueeze(2)
    for _ in range(suite.steps):
        residual = descended @ by_head - target
        descended = descended - LEARNING_RATE * 2 * residual @ by_head.mT
    return {
        WEIGHTS: rows,
        PROJECTED: (output @ inverse).squeeze(2),
        EFFECTIVE: (target @ inverse).squeeze(2),
        DESCENDED: descended.squeeze(2),
    }


def _measured(
    suite: Suite, answers: dict[str, "np.typing.NDArray[np.float64]"],
    negatives: dict[str, "np.typing.NDArray[np.float64]"],
) -> EvalResult:  # fmt: skip
    """Return the means of shares [depths, samples]."""
    metrics: Metrics = {"prompts": len(suite.depths) * suite.samples}
    per_item = {}
    for kind in KINDS:
        for depth in (None, *suite.depths):
            rows = slice(None) if depth is None else [suite.depths.index(depth)]
            shares = answers[kind][rows]
            name = answer_name(kind, depth)
            metrics[name] = float(shares.mean())
            per_item[name] = per_item_scores("haystacks", shares.mean(axis=0))
        metrics[negative_name(kind)] = float(negatives[kind].mean())
    return EvalResult(metrics, per_item)
