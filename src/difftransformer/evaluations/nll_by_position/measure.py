"""Cumulative mean loss by position in held-out long documents.

Shapes: N = documents, B = documents in a batch, T = positions of a window, P = places reported.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError, DataError
from difftransformer.evaluation.context import EvalContext, EvalResult, Metrics, per_item_scores
from difftransformer.evaluations.nll_by_position.settings import WHOLE, Suite, nll_name

CURVES = "curves.npz"


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Mean losses in nats per token over the first p targets, and over documents.

    Args:
        suite: Length, positions and documents.
        context: The model; of its dataset the long documents of the validation split. Its details
            get ``curves.npz``: ``nll`` and ``cumulative`` [T], means over documents at every
            position and up to it; ``by_document`` [N, P], cumulative; ``places`` [P]; ``starts``
            [N], where the documents begin in the split.

    Returns:
        nll_p{p} for each place, loss (the same up to the last one), documents, tokens. Losses are
        known by document, too.

    Raises:
        ConfigError: The data are rows.
        DataError: No held-out document is long enough.
    """
    starts = _starts(suite, context.dataset)
    at, tokens = np.array(suite.places) - 1, context.dataset.split("validation").tokens
    total, by_document = np.zeros(suite.length), np.empty((len(starts), len(at)))
    for first in range(0, len(starts), suite.batch_size):
        some = starts[first : first + suite.batch_size]
        windows = np.stack([tokens[start : start + suite.length + 1] for start in some])
        inputs = torch.from_numpy(windows.astype(np.int64))
        losses = context.scorer.losses(inputs, suite.loss_chunk).numpy()  # [B, T]
        total += losses.sum(axis=0)
        by_document[first : first + len(some)] = _cumulative(losses)[:, at]
    nll = total / len(starts)
    cumulative = _cumulative(nll)
    np.savez(
        context.details / CURVES,
        nll=nll,
        cumulative=cumulative,
        by_document=by_document,
        places=at + 1,
        starts=starts,
    )
    metrics: Metrics = {nll_name(place): float(cumulative[place - 1]) for place in suite.places}
    metrics |= {
        WHOLE: float(cumulative[-1]),
        "documents": len(starts),
        "tokens": len(starts) * suite.length,
    }
    names = [*map(nll_name, suite.places), WHOLE]
    columns = [*by_document.T, by_document[:, -1]]
    per_item = {
        name: per_item_scores("documents", one) for name, one in zip(names, columns, strict=True)
    }
    return EvalResult(metrics, per_item)


def _starts(suite: Suite, dataset: PackedDataset) -> NDArray[np.int64]:
    """Where the documents begin that have ``length`` tokens and one more, [N]."""
    if dataset.manifest.row_length is not None:
        raise ConfigError(
            f"nll_by_position reads documents, {dataset.folder} has generated rows: leave the "
            "suite out or train the run on text"
        )
    ends = dataset.split("validation").document_ends()
    starts = np.concatenate(([0], ends[:-1])).astype(np.int64)
    lengths = ends - starts
    found = starts[lengths > suite.length]
    if len(found) == 0:
        raise DataError(
            f"{dataset.folder}: no held-out document has more than {suite.length} tokens, the "
            f"longest has {lengths.max()}: lower nll_by_position.length, hold out more documents "
            "(validation_tokens, validation_share) or raise max_document_tokens"
        )
    return found[: suite.max_documents]


def _cumulative(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of the first t losses along the last axis, for every t; same shape."""
    means: NDArray[np.float64] = losses.cumsum(axis=-1) / np.arange(1, losses.shape[-1] + 1)
    return means
