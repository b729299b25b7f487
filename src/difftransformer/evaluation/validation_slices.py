"""Validation loss, overall and in the paper's slices: AR-Hit and Others (tables 6 and 7).

Windows of ``seq_len`` targets tile the validation split in order. In running text they cross
document boundaries, exactly as in training: a window may hold the end of one document and the start
of the next, and an n-gram seen in the former counts as seen. How many windows do is reported.

Shapes: B = windows in memory, T = seq_len.
"""

import math

import numpy as np

from difftransformer.config.suites.validation_slices import ValidationSlices
from difftransformer.data.loader import sequential_windows
from difftransformer.data.ngrams import Keys
from difftransformer.data.packed import PackedDataset, PackedSplit
from difftransformer.errors import ConfigError
from difftransformer.evaluation.ar_hit import ar_hits, load_frequent
from difftransformer.evaluation.scorer import Scorer
from difftransformer.evaluation.subject import Metrics, Subject


def measure(suite: ValidationSlices, subject: Subject) -> Metrics:
    """Losses in nats per token and the sizes of the slices.

    Args:
        suite: Windows, n-grams and cut-off.
        subject: The model; the validation split of its dataset is read once, in order, and its
            frequent n-grams come from `count_ngrams` with the suite's ``n`` and ``max_count``.

    Returns:
        loss, perplexity, ar_hit_loss, others_loss (None for a slice without tokens),
        ar_hit_share, tokens, ar_hit_tokens, others_tokens, windows, windows_across_documents.
        ``loss`` is the mean of the slices' losses weighted by their shares.

    Raises:
        ConfigError: No n-grams, or windows longer than the model's context.
        DataError: The validation split is missing or too short, or the n-grams are damaged.
    """
    scorer, dataset = subject.scorer, subject.dataset
    if subject.ngrams is None:
        raise ConfigError(
            "validation_slices needs the frequent n-grams: give the output of `count_ngrams`"
        )
    if suite.seq_len > scorer.max_positions:
        raise ConfigError(
            f"validation_slices.seq_len {suite.seq_len} is longer than the model's context: at "
            f"most its max_positions {scorer.max_positions}"
        )
    losses, tokens = _sums(suite, scorer, dataset, load_frequent(subject.ngrams))
    return _metrics(losses, tokens) | _crossings(dataset.split("validation"), suite, tokens)


def _sums(
    suite: ValidationSlices, scorer: Scorer, dataset: PackedDataset, frequent: Keys
) -> tuple[np.ndarray, np.ndarray]:
    """Summed losses and numbers of tokens of Others and AR-Hit, [2] each."""
    losses, tokens = np.zeros(2), np.zeros(2, dtype=np.int64)
    vocab_size = dataset.manifest.vocab_size
    for windows in sequential_windows(
        dataset,
        "validation",
        seq_len=suite.seq_len,
        batch_size=suite.batch_size,
        max_tokens=suite.max_tokens,
    ):
        hits = ar_hits(windows.numpy(), frequent, n=suite.n, vocab_size=vocab_size).reshape(-1)
        found = scorer.losses(windows, suite.loss_chunk).numpy().reshape(-1)
        losses += np.bincount(hits, weights=found, minlength=2)
        tokens += np.bincount(hits, minlength=2)
    return losses, tokens


def _metrics(losses: np.ndarray, tokens: np.ndarray) -> Metrics:
    (others_sum, hit_sum), (others, hits) = losses.tolist(), tokens.tolist()
    loss = (others_sum + hit_sum) / (others + hits)
    return {
        "loss": loss,
        "perplexity": math.exp(loss) if loss < _MOST_NATS else None,
        "ar_hit_loss": hit_sum / hits if hits else None,
        "others_loss": others_sum / others if others else None,
        "ar_hit_share": hits / (others + hits),
        "tokens": others + hits,
        "ar_hit_tokens": hits,
        "others_tokens": others,
    }


_MOST_NATS = 700.0  # exp of more is no float


def _crossings(split: PackedSplit, suite: ValidationSlices, tokens: np.ndarray) -> Metrics:
    """Count the windows, and those that hold tokens of more than one document."""
    windows = int(tokens.sum()) // suite.seq_len
    if split.row_length is not None:
        return {"windows": windows, "windows_across_documents": 0}
    starts = np.arange(windows, dtype=np.int64) * suite.seq_len
    ends = split.document_ends()
    # A document that ends at e makes token e the first of the next one.
    first = np.searchsorted(ends, starts, side="right")
    last = np.searchsorted(ends, starts + suite.seq_len, side="right")
    return {"windows": windows, "windows_across_documents": int((first != last).sum())}
