"""Validation loss, overall and in the paper's slices of tokens: AR-Hit and Others (table 6).

A target is an AR-Hit (associative recall hit) if it ends an n-gram that already occurred in its
context (the tokens before it in the same window) and is not frequent in training: a frequent n-gram
need not be recalled. After Zoology (Arora et al. 2023) and Differential Transformer, section 3.8.

Windows of ``seq_len`` targets tile the validation split in order. In running text they cross
document boundaries as in training, and an n-gram of the previous document counts as context. The
number of such windows is reported.

Shapes: B = windows in memory, T = seq_len, targets of a window; a window holds T + 1 tokens.
"""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from difftransformer.data.ngrams import Keys, contains, ngram_keys
from difftransformer.data.packed import PackedSplit
from difftransformer.errors import ConfigError, DataError
from difftransformer.evaluation.context import (
    EvalContext,
    EvalResult,
    Metrics,
    losses_by_window,
    per_item_scores,
)
from difftransformer.evaluations.validation_slices.settings import Suite
from difftransformer.provenance.checksums import verify_file
from difftransformer.provenance.layout import SUMS

_MOST_NATS = 700.0  # exp of more is no float


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Return validation losses in nats per token, overall and by slice, and the slices' sizes.

    The validation split of the dataset is read once, in order. The frequent n-grams in ``context``
    come from `count_ngrams` with the suite's ``n`` and ``max_count``.

    Returns:
        loss, perplexity, ar_hit_loss, others_loss (None for a slice without tokens),
        ar_hit_share, tokens, ar_hit_tokens, others_tokens, windows, windows_across_documents.
        ``loss`` is the mean of the slices' losses weighted by their shares. Losses have
        per-document sums as per-item scores.

    Raises:
        ConfigError: The n-grams are missing, or windows exceed the model's context.
        DataError: The validation split is missing or too short, or the n-grams are damaged.
    """
    if context.ngrams is None:
        raise ConfigError(
            "validation_slices needs the frequent n-grams: pass the output of `count_ngrams`"
        )
    losses, tokens = _sums(suite, context, load_frequent(context.ngrams))
    (others_sum, hit_sum), (others, hits) = losses.sum(0).tolist(), tokens.sum(0).tolist()
    total = others + hits
    loss = (others_sum + hit_sum) / total
    metrics: Metrics = {
        "loss": loss,
        "perplexity": math.exp(loss) if loss < _MOST_NATS else None,
        "ar_hit_loss": hit_sum / hits if hits else None,
        "others_loss": others_sum / others if others else None,
        "ar_hit_share": hits / total,
        "tokens": total,
        "ar_hit_tokens": hits,
        "others_tokens": others,
    }
    split = context.dataset.split("validation")
    metrics |= _crossings(split, suite, total // suite.seq_len)
    by_slice = {
        "loss": (losses.sum(1), tokens.sum(1)),
        "ar_hit_loss": (losses[:, 1], tokens[:, 1]),
        "others_loss": (losses[:, 0], tokens[:, 0]),
    }
    unit = "documents" if split.row_length is None else "rows"
    return EvalResult(
        metrics, {name: per_item_scores(unit, *terms) for name, terms in by_slice.items()}
    )


def ar_hits(
    windows: NDArray[np.integer], frequent: Keys, *, n: int, vocab_size: int
) -> NDArray[np.bool_]:
    """Return whether each target of windows is an AR-Hit (associative recall hit).

    Args:
        windows: Token ids, [B, T + 1]; targets are ``windows[:, 1:]``.
        frequent: Sorted keys of the n-grams that are frequent in training.
        n: Length of the n-grams, at least 2.
        vocab_size: Vocabulary size of the dataset, as for `ngram_keys`.

    Returns:
        Booleans [B, T]; False for the first n - 1 targets.
    """
    assert n >= 2, n
    hits = np.zeros((windows.shape[0], windows.shape[1] - 1), dtype=np.bool_)
    if windows.shape[1] >= n:
        keys = ngram_keys(windows, n, vocab_size)
        hits[:, n - 2 :] = _seen_before(keys) & ~contains(frequent, keys)
    return hits


def load_frequent(path: Path) -> Keys:
    """Return the sorted keys of frequent n-grams in a file that `count_ngrams` wrote.

    Raises:
        DataError: The file is missing, changed since it was written, or damaged.
    """
    rebuild = "rebuild it with `count_ngrams`"
    if path.is_file():
        verify_file(path, path.with_suffix(SUMS))
    try:
        keys = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file of frequent n-grams; {rebuild}") from None
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: not a file of frequent n-grams ({error}); {rebuild}") from None
    if not isinstance(keys, np.ndarray) or keys.dtype != np.uint64 or keys.ndim != 1:
        raise DataError(f"{path}: is no list of uint64 n-gram keys; {rebuild}")
    if np.any(keys[1:] <= keys[:-1]):
        raise DataError(f"{path}: n-gram keys are not sorted; {rebuild}")
    return keys


def _sums(suite: Suite, context: EvalContext, frequent: Keys) -> tuple[np.ndarray, np.ndarray]:
    """Return summed losses and token counts per document [D, 2], Others before AR-Hit."""
    ends = context.dataset.split("validation").document_ends()
    losses, tokens = np.zeros(2 * len(ends)), np.zeros(2 * len(ends), dtype=np.int64)
    vocab_size = context.dataset.manifest.vocab_size
    for windows, token_losses, owners in losses_by_window(suite, context):
        hits = ar_hits(windows.numpy(), frequent, n=suite.n, vocab_size=vocab_size).reshape(-1)
        slots = 2 * owners + hits
        losses += np.bincount(slots, weights=token_losses, minlength=len(losses))
        tokens += np.bincount(slots, minlength=len(tokens))
    read = max(int(tokens.nonzero()[0].max()) // 2 + 1, 1)
    return losses.reshape(-1, 2)[:read], tokens.reshape(-1, 2)[:read]


def _crossings(split: PackedSplit, suite: Suite, windows: int) -> Metrics:
    """Count the windows with tokens of more than one document."""
    if split.row_length is not None:
        return {"windows": windows, "windows_across_documents": 0}
    starts = np.arange(windows, dtype=np.int64) * suite.seq_len
    ends = split.document_ends()
    # A document that ends at e makes token e the first of the next one.
    first = np.searchsorted(ends, starts, side="right")
    last = np.searchsorted(ends, starts + suite.seq_len, side="right")
    return {"windows": windows, "windows_across_documents": int((first != last).sum())}


def _seen_before(keys: Keys) -> NDArray[np.bool_]:
    """Return whether an equal key occurs earlier in the same row, [B, K]."""
    # A stable sort keeps equal keys in order, so all but the first of a group have been seen.
    order = np.argsort(keys, axis=1, kind="stable")
    ranked = np.take_along_axis(keys, order, axis=1)
    repeats = np.zeros(keys.shape, dtype=np.bool_)
    repeats[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    seen = np.empty_like(repeats)
    np.put_along_axis(seen, order, repeats, axis=1)
    return seen
