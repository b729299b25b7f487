"""Loss on held-out text, by document."""

import numpy as np

from difftransformer.evaluation.subject import Measured, Subject, losses_by_window, means
from difftransformer.evaluations.adaptation.settings import Suite


def measure(suite: Suite, subject: Subject) -> Measured:
    """Mean loss in nats per token.

    Returns:
        loss, known by document, too, and tokens.

    Raises:
        DataError: the validation split is missing or too short.
    """
    split = subject.dataset.split("validation")
    documents = len(split.document_ends())
    losses, tokens = np.zeros(documents), np.zeros(documents)
    for _, found, owners in losses_by_window(suite, subject):
        losses += np.bincount(owners, weights=found, minlength=documents)
        tokens += np.bincount(owners, minlength=documents)
    read = int(tokens.nonzero()[0].max()) + 1
    unit = "documents" if split.row_length is None else "rows"
    return Measured(
        {"loss": float(losses.sum() / tokens.sum()), "tokens": int(tokens.sum())},
        {"loss": means(unit, losses[:read], tokens[:read])},
    )
