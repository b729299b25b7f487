"""Which predicted tokens could be copied from the context: the AR-Hit slice.

A target is an AR-Hit if it ends an n-gram that already stands whole in its context (the tokens of
the same window before it) and that is not frequent in training, for a frequent one need not be
looked up. After Zoology (Arora et al. 2023), as Differential Transformer, section 3.7, does.

Shapes: B = windows, T = targets of a window; a window holds T + 1 tokens.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from difftransformer.data.ngrams import Keys, contains, ngram_keys
from difftransformer.errors import DataError
from difftransformer.provenance.published import SUMS, require_published


def ar_hits(
    windows: NDArray[np.integer], frequent: Keys, *, n: int, vocab_size: int
) -> NDArray[np.bool_]:
    """Whether each target is an AR-Hit; B sorts of T keys, memory of a few times the windows.

    Args:
        windows: Token ids, [B, T + 1]; targets are ``windows[:, 1:]``.
        frequent: Sorted keys of the n-grams that are frequent in training.
        n: Length of the n-grams, at least 2.
        vocab_size: Vocabulary of the dataset, as for `ngram_keys`.

    Returns:
        Booleans [B, T]. The first n - 1 targets end no n-gram that could stand in their context.
    """
    assert n >= 2, n
    hits = np.zeros((windows.shape[0], windows.shape[1] - 1), dtype=np.bool_)
    if windows.shape[1] >= n:
        keys = ngram_keys(windows, n, vocab_size)
        hits[:, n - 2 :] = _seen_before(keys) & ~contains(frequent, keys)
    return hits


def load_frequent(path: Path) -> Keys:
    """Sorted keys as `count_ngrams` wrote them.

    Raises:
        DataError: The file is missing, changed since it was written, or holds something else.
    """
    rebuild = "rebuild it with `count_ngrams`"
    if path.is_file():
        require_published(path, path.with_suffix(SUMS))
    try:
        keys = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file of frequent n-grams; {rebuild}") from None
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: not a file of frequent n-grams ({error}); {rebuild}") from None
    if not isinstance(keys, np.ndarray) or keys.dtype != np.uint64 or keys.ndim != 1:
        raise DataError(f"{path}: holds no list of uint64 n-gram keys; {rebuild}")
    if np.any(keys[1:] <= keys[:-1]):
        raise DataError(f"{path}: n-gram keys are not sorted; {rebuild}")
    return keys


def _seen_before(keys: Keys) -> NDArray[np.bool_]:
    """Whether an equal key stands earlier in the same row, [B, K]."""
    # A stable sort keeps equal keys in order, so all but the first of a group have been seen.
    order = np.argsort(keys, axis=1, kind="stable")
    ranked = np.take_along_axis(keys, order, axis=1)
    repeats = np.zeros(keys.shape, dtype=np.bool_)
    repeats[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    seen = np.empty_like(repeats)
    np.put_along_axis(seen, order, repeats, axis=1)
    return seen
