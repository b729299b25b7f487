"""Eigenvalues of a symmetric matrix that is known by its products alone.

Lanczos' coefficients give both ends of the spectrum and, by Gauss quadrature, its density (Golub
and Welsch 1969; Lin, Saad and Yang 2016, arXiv 1308.5467), for the same products. Library routines
for the ends, such as ARPACK's, restart and keep the coefficients to themselves, so each product
would be made twice. Power iteration is what the paper's procedure takes.

Shapes: n = rows of the matrix, m = steps.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

Product = Callable[[Tensor], Tensor]
"""[n] -> [n], float64."""

_EXHAUSTED = 1e-10
"""A rest this small, against the largest eigenvalue, is rounding: no direction is left."""


class Ritz(NamedTuple):
    """What m steps from one vector know of the spectrum.

    Attributes:
        nodes: Estimates of eigenvalues, ascending, [m] or fewer where the matrix has fewer.
        weights: Share of the spectrum at each node, as the vector sees it; they sum to 1.
        errors: Bound of the distance from each node to the nearest eigenvalue.
    """

    nodes: list[float]
    weights: list[float]
    errors: list[float]

    def top(self, number: int) -> tuple[list[float], float]:
        """Nodes of largest magnitude, that first, and the largest bound of their errors."""
        places = sorted(range(len(self.nodes)), key=lambda at: -abs(self.nodes[at]))[:number]
        return [self.nodes[at] for at in places], max(self.errors[at] for at in places)


def lanczos(product: Product, start: Tensor, steps: int) -> Ritz:
    """Run m steps from a random vector [n], every one made orthogonal to all before it.

    An eigenvalue that occurs several times is found once.
    """
    basis = start.new_empty(steps, len(start))
    diagonal, beside = np.zeros(steps), np.zeros(steps)
    basis[0] = start / start.norm()
    for step in range(steps):
        rest = product(basis[step])
        diagonal[step] = float(rest @ basis[step])
        known = basis[: step + 1]
        for _ in range(2):  # once leaves what rounding mixes in
            rest = rest - (known @ rest) @ known
        beside[step] = float(rest.norm())
        size = max(np.abs(diagonal[: step + 1]).max(), beside[:step].max(initial=0.0))
        if step + 1 == steps or beside[step] <= _EXHAUSTED * size:
            break
        basis[step + 1] = rest / beside[step]
    nodes, vectors = eigh_tridiagonal(diagonal[: step + 1], beside[:step])
    errors = np.abs(beside[step] * vectors[-1])
    return Ritz(nodes.tolist(), np.square(vectors[0]).tolist(), errors.tolist())
