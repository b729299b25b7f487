"""Eigenvalues of a symmetric matrix, given by its matrix-vector products, by Lanczos iteration.

Lanczos coefficients give both ends of the spectrum and, by Gauss quadrature, its density (Golub and
Welsch 1969; Lin, Saad and Yang 2016, arXiv 1308.5467), from the same products. Library routines for
the ends, such as ARPACK's, restart and hide the coefficients, so each product would be computed
twice. The procedure of the Dex paper uses power iteration.

Shapes: n = size of the matrix, m = steps.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

MatVec = Callable[[Tensor], Tensor]
"""Function that multiplies the matrix with a vector, [n] -> [n], float64."""

_TOLERANCE = 1e-10
"""A residual this small, relative to the largest eigenvalue, is rounding: the basis is complete."""


class RitzValues(NamedTuple):
    """Estimate of a matrix's spectrum from m Lanczos steps.

    Attributes:
        nodes: Estimates of eigenvalues, ascending; m, or fewer if the matrix has fewer.
        weights: Fraction of the spectrum at each node, by Gauss quadrature; they sum to 1.
        errors: Upper bound of each node's distance to the nearest eigenvalue.
    """

    nodes: list[float]
    weights: list[float]
    errors: list[float]

    def top(self, number: int) -> tuple[list[float], float]:
        """Return the nodes of largest magnitude, descending, and their largest error bound."""
        order = sorted(range(len(self.nodes)), key=lambda index: -abs(self.nodes[index]))[:number]
        return [self.nodes[index] for index in order], max(self.errors[index] for index in order)


def lanczos(matvec: MatVec, start: Tensor, steps: int) -> RitzValues:
    """Return an estimate of a symmetric matrix's spectrum, by Lanczos iteration.

    Each step reorthogonalizes against all earlier ones. A repeated eigenvalue appears once.

    Args:
        matvec: Product of the matrix with a vector.
        start: Random start vector, [n].
        steps: m, the maximum number of steps.
    """
    basis = start.new_empty(steps, len(start))
    diagonal, off_diagonal = np.zeros(steps), np.zeros(steps)
    basis[0] = start / start.norm()
    for step in range(steps):
        residual = matvec(basis[step])
        diagonal[step] = float(residual @ basis[step])
        previous = basis[: step + 1]
        for _ in range(2):  # a single pass leaves rounding errors
            residual = residual - (previous @ residual) @ previous
        off_diagonal[step] = float(residual.norm())
        size = max(np.abs(diagonal[: step + 1]).max(), off_diagonal[:step].max(initial=0.0))
        if step + 1 == steps or off_diagonal[step] <= _TOLERANCE * size:
            break
        basis[step + 1] = residual / off_diagonal[step]
    nodes, vectors = eigh_tridiagonal(diagonal[: step + 1], off_diagonal[:step])
    errors = np.abs(off_diagonal[step] * vectors[-1])
    return RitzValues(nodes.tolist(), np.square(vectors[0]).tolist(), errors.tolist())
