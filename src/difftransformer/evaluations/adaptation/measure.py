"""Loss on held-out text, per document."""

import numpy as np

from difftransformer.evaluation.context import (
    EvalContext,
    EvalResult,
    losses_by_window,
    per_item_scores,
)
from difftransformer.evaluations.adaptation.settings import Suite


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Return a model's mean loss on held-out text, in nats per token.

    Returns:
        Metrics loss, and tokens (their number). The per-item scores of loss are by document.

    Raises:
        DataError: The validation split is missing or too short.
    """
    split = context.dataset.split("validation")
    documents = len(split.document_ends())
    losses, tokens = np.zeros(documents), np.zeros(documents)
    for _, token_losses, owners in losses_by_window(suite, context):
        losses += np.bincount(owners, weights=token_losses, minlength=documents)
        tokens += np.bincount(owners, minlength=documents)
    read = int(tokens.nonzero()[0].max()) + 1
    unit = "documents" if split.row_length is None else "rows"
    return EvalResult(
        {"loss": float(losses.sum() / tokens.sum()), "tokens": int(tokens.sum())},
        {"loss": per_item_scores(unit, losses[:read], tokens[:read])},
    )
