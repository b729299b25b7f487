"""Loss on held-out text, by document.

Windows of ``seq_len`` targets tile the validation split in order and cross document boundaries, as
in training. Shapes: T = seq_len, D = documents.
"""

import numpy as np

from difftransformer.evaluation.subject import Measured, Subject, means, validation_windows
from difftransformer.measurements.adaptation.settings import Suite


def measure(suite: Suite, subject: Subject) -> Measured:
    """Mean loss in nats per token.

    Returns:
        loss, known by document, too, and tokens.

    Raises:
        ConfigError: windows longer than the model's context.
        DataError: the validation split is missing or too short.
    """
    split = subject.dataset.split("validation")
    ends = split.document_ends()
    losses, tokens = np.zeros(len(ends)), np.zeros(len(ends))
    start = 1  # the first target of a window is its second token
    for windows in validation_windows(suite, subject):
        found = subject.scorer.losses(windows, suite.loss_chunk).numpy().reshape(-1)
        owners = np.searchsorted(ends, start + np.arange(len(found)), side="right")
        losses += np.bincount(owners, weights=found, minlength=len(ends))
        tokens += np.bincount(owners, minlength=len(ends))
        start += len(found)
    read = int(tokens.nonzero()[0].max()) + 1
    unit = "documents" if split.row_length is None else "rows"
    return Measured(
        {"loss": float(losses.sum() / tokens.sum()), "tokens": int(tokens.sum())},
        {"loss": means(unit, losses[:read], tokens[:read])},
    )
