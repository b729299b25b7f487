"""Linear centered kernel alignment (CKA) of all pairs of features, over minibatches.

    HSIC_1(K, L) = (tr(K~ L~) + 1'K~1 1'L~1 / ((n-1)(n-2)) - 2 1'K~L~1 / (n-2)) / (n (n-3))
    CKA(X, Y)    = sum HSIC_1(XX', YY') / sqrt(sum HSIC_1(XX', XX') sum HSIC_1(YY', YY'))

with K~ the matrix K without its diagonal and sums over batches of n samples: the unbiased estimator
of Song et al. 2012, whose mean over batches does not depend on their size (Nguyen et al. 2020,
arXiv 2010.15327, section 3.1). Shapes: F = features, n = samples, e = width of a feature.
"""

import torch
from torch import Tensor


class Alignment:
    """Linear CKA (centered kernel alignment) of every two features, accumulated over batches."""

    def __init__(self) -> None:
        self._sums: Tensor | None = None

    def add(self, features: Tensor) -> None:
        """Add a batch of features to the sums.

        ``features`` is [F, n, e]: F features of width e on n > 3 samples.
        """
        batch = hsic(features)
        self._sums = batch if self._sums is None else self._sums + batch

    def matrix(self) -> Tensor:
        """Return the CKA of every two features, [F, F]; NaN if one of the two is constant."""
        assert self._sums is not None, "no batch was added"
        norms = self._sums.diagonal().clamp_min(0).sqrt()
        return self._sums / (norms[:, None] * norms)


def hsic(features: Tensor) -> Tensor:
    """Return the unbiased HSIC_1 of every two features, [F, n, e] -> float64 [F, F].

    HSIC is the Hilbert-Schmidt independence criterion with linear kernels, over the n samples.
    """
    n = features.shape[1]
    assert n > 3, n
    features = features.double()
    products = features @ features.mT
    products.diagonal(dim1=1, dim2=2).zero_()
    rows = products.sum(-1)
    totals = rows.sum(-1)
    flat = products.flatten(1)
    traces = flat @ flat.T
    middle = torch.outer(totals, totals) / ((n - 1) * (n - 2))
    return (traces + middle - 2 * (rows @ rows.T) / (n - 2)) / (n * (n - 3))
