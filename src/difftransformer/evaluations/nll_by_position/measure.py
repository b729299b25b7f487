"""Cumulative mean loss by position in held-out long documents.

Shapes: N = documents, B = documents in a batch, T = positions of a window, P = reported positions.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError, DataError
from difftransformer.evaluation.context import EvalContext, EvalResult, Metrics, per_item_scores
from difftransformer.evaluations.nll_by_position.settings import WINDOW_LOSS, Suite, nll_metric

CURVES = "curves.npz"


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Return the mean loss in nats per token over the first p targets of held-out documents.

    Args:
        suite: Settings of the length, positions and documents.
        context: The model and its dataset, whose validation split is read. Its details folder
            gets ``curves.npz``: ``nll`` and ``cumulative`` [T], means over documents at every
            position and up to it; ``by_document`` [N, P], cumulative; ``positions`` [P]; ``starts``
            [N], where the documents begin in the split.

    Returns:
        nll_p{p} for each reported position p, loss (that at the last position), documents and
        tokens (their numbers). Losses have per-item scores by document.

    Raises:
        ConfigError: The dataset has generated rows, not documents.
        DataError: No held-out document is long enough.
    """
    starts = _starts(suite, context.dataset)
    indices, tokens = np.array(suite.positions) - 1, context.dataset.split("validation").tokens
    total, by_document = np.zeros(suite.length), np.empty((len(starts), len(indices)))
    for first in range(0, len(starts), suite.batch_size):
        batch = starts[first : first + suite.batch_size]
        windows = np.stack([tokens[start : start + suite.length + 1] for start in batch])
        inputs = torch.from_numpy(windows.astype(np.int64))
        losses = context.scorer.losses(inputs, suite.loss_chunk).numpy()  # [B, T]
        total += losses.sum(axis=0)
        by_document[first : first + len(batch)] = _cumulative(losses)[:, indices]
    nll = total / len(starts)
    cumulative = _cumulative(nll)
    np.savez(
        context.details / CURVES,
        nll=nll,
        cumulative=cumulative,
        by_document=by_document,
        positions=indices + 1,
        starts=starts,
    )
    metrics: Metrics = {
        nll_metric(position): float(cumulative[position - 1]) for position in suite.positions
    }
    metrics |= {
        WINDOW_LOSS: float(cumulative[-1]),
        "documents": len(starts),
        "tokens": len(starts) * suite.length,
    }
    names = [*map(nll_metric, suite.positions), WINDOW_LOSS]
    columns = [*by_document.T, by_document[:, -1]]
    per_item = {
        name: per_item_scores("documents", scores)
        for name, scores in zip(names, columns, strict=True)
    }
    return EvalResult(metrics, per_item)


def _starts(suite: Suite, dataset: PackedDataset) -> NDArray[np.int64]:
    """Return the start of each document with more than ``length`` tokens, [N]."""
    if dataset.manifest.row_length is not None:
        raise ConfigError(
            f"nll_by_position reads documents, {dataset.folder} has generated rows: leave the "
            "suite out or train the run on text"
        )
    ends = dataset.split("validation").document_ends()
    starts = np.concatenate(([0], ends[:-1])).astype(np.int64)
    lengths = ends - starts
    long_enough = starts[lengths > suite.length]
    if len(long_enough) == 0:
        raise DataError(
            f"{dataset.folder}: no held-out document has more than {suite.length} tokens, the "
            f"longest has {lengths.max()}: lower nll_by_position.length, hold out more documents "
            "(validation_tokens, validation_share) or raise max_document_tokens"
        )
    return long_enough[: suite.max_documents]


def _cumulative(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of the first t losses along the last axis for every t; same shape."""
    means: NDArray[np.float64] = losses.cumsum(axis=-1) / np.arange(1, losses.shape[-1] + 1)
    return means
