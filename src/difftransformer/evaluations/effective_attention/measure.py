"""Effective attention (arXiv 2505.16333, equation 6, appendix F.3 and table 2).

A head whose output is changed, O' = O (I - M) with O = A V, has no weights of its own that give O'.
Those nearest to it on its values are X = O' V^+, which is compared here with what the projection
does by itself:

    weights    A, as the head has them
    projected  A V V^+: what is left of A on the values, nothing being changed
    effective  O' V^+; the same where nothing is changed
    descended  the check of appendix F.3: from A so many steps of gradient descent on |X V - O'|^2

With more positions than a head is wide, V V^+ is no identity: it spreads A over all positions and
makes weights negative, in any model. So base and adapted models are projected alike, and only the
difference of their effective rows says something of the adaptation.

Shapes: L = layers, H = heads, G = key/value heads, S = positions, e = width of a value.
"""

import numpy as np
import torch
from torch import Tensor

from difftransformer.convert.attention_hooks import find_output_projections
from difftransformer.convert.dex_weights import read_dex_weights
from difftransformer.evaluation.context import EvalContext, EvalResult, Metrics, per_item_scores
from difftransformer.evaluation.retrieval.prompts import open_builder
from difftransformer.evaluation.retrieval.regions import region_shares, regions_of
from difftransformer.evaluation.retrieval.settings import REGIONS, Cell
from difftransformer.evaluations.effective_attention.settings import (
    DESCENDED,
    EFFECTIVE,
    KINDS,
    PROJECTED,
    RATE,
    WEIGHTS,
    Suite,
    answer_name,
    negative_name,
)


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Mean shares of the answer, and of negative weights.

    Returns:
        answer_{kind} for all depths together and for each (_d{D}): share of the absolute weights
        of a row; negative_{kind}: share of a row's weights that are below zero; prompts. Shares of
        the answer are known by haystack, too, which prompts of all depths have in common.

    Raises:
        CheckpointError: The maps of a model from elsewhere cannot be read.
        ConfigError: A length has no room for the needles and the question.
        DataError: Held-out text or the tokenizer is missing.
    """
    scorer = context.scorer
    builder = open_builder(suite, context.dataset)
    joined = find_output_projections(scorer.model)
    changes = read_dex_weights(context.model, len(joined), joined[0].num_heads)
    (length,) = suite.contexts
    shape = (len(suite.depths), suite.samples)
    answers, negatives = ({kind: np.zeros(shape) for kind in KINDS} for _ in range(2))
    for place, depth in enumerate(suite.depths):
        for sample in range(suite.samples):
            prompt = builder.prompt(Cell(suite.needles, 1, length, depth), sample)
            ids = builder.ids(prompt.context + prompt.questions[0])
            regions = regions_of(prompt, len(ids))
            rows, values = (one.double() for one in scorer.last_attention(ids, suite.chunk))
            found = effective(rows, values, None if changes is None else changes.matrices, suite)
            for kind, weights in found.items():
                absolute = region_shares(weights.numpy(), regions)[0]
                answers[kind][place, sample] = absolute[..., REGIONS.index("answer")].mean()
                negatives[kind][place, sample] = float((weights < 0).double().mean())
    return _measured(suite, answers, negatives)


def effective(
    rows: Tensor, values: Tensor, matrices: Tensor | None, suite: Suite
) -> dict[str, Tensor]:
    """Every kind of a prompt's rows, [L, H, S].

    Args:
        rows: Weights A, float64 [L, H, S].
        values: V, float64 [L, G, S, e].
        matrices: M, [L, H, e, e]; None: heads are not changed.
        suite: Steps and rate of the descent.
    """
    by_head = values.repeat_interleave(rows.shape[1] // values.shape[1], dim=1)  # [L, H, S, e]
    inverse = torch.linalg.pinv(by_head)  # [L, H, e, S]
    given = rows.unsqueeze(2) @ by_head  # [L, H, 1, e]
    target = given if matrices is None else given - given @ matrices
    descended = rows.unsqueeze(2)
    for _ in range(suite.steps):
        descended = descended - RATE * 2 * (descended @ by_head - target) @ by_head.mT
    return {
        WEIGHTS: rows,
        PROJECTED: (given @ inverse).squeeze(2),
        EFFECTIVE: (target @ inverse).squeeze(2),
        DESCENDED: descended.squeeze(2),
    }


def _measured(
    suite: Suite, answers: dict[str, "np.typing.NDArray[np.float64]"],
    negatives: dict[str, "np.typing.NDArray[np.float64]"],
) -> EvalResult:  # fmt: skip
    """Means of shares by depth and sample."""
    metrics: Metrics = {"prompts": len(suite.depths) * suite.samples}
    per_item = {}
    for kind in KINDS:
        for depth in (None, *suite.depths):
            some = answers[kind] if depth is None else answers[kind][[suite.depths.index(depth)]]
            name = answer_name(kind, depth)
            metrics[name] = float(some.mean())
            per_item[name] = per_item_scores("haystacks", some.mean(axis=0))
        metrics[negative_name(kind)] = float(negatives[kind].mean())
    return EvalResult(metrics, per_item)
