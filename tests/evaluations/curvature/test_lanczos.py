"""Ends, density and largest eigenvalues of matrices whose spectrum is known."""

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from difftransformer.evaluations.curvature.lanczos import Product, lanczos


def matrix(eigenvalues: np.ndarray, seed: int = 0) -> Tensor:
    """A symmetric matrix with these eigenvalues in random directions."""
    drawn = np.random.default_rng(seed).standard_normal((len(eigenvalues),) * 2)
    basis = np.linalg.qr(drawn)[0]
    return torch.from_numpy(basis * eigenvalues @ basis.T)


def times(of: Tensor) -> Product:
    return lambda vector: of @ vector


def start(size: int, seed: int = 1) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(size))


SPREAD = np.concatenate((np.linspace(-0.1, 0.1, 190), [-3, -1.5, -0.9, 0.8, 1.2, 2, 2.5, 4, 5, 7]))


def test_ends_and_top_are_those_of_lapack_and_arpack() -> None:
    dense = matrix(SPREAD)
    found = lanczos(times(dense), start(200), 25)
    exact = np.linalg.eigvalsh(dense.numpy())
    assert found.nodes[-1] == pytest.approx(exact[-1], abs=1e-8)
    assert found.nodes[0] == pytest.approx(exact[0], abs=1e-8)
    operator = LinearOperator(dense.shape, matvec=lambda x: dense.numpy() @ x, dtype=float)
    largest = eigsh(operator, k=5, which="LM", return_eigenvectors=False)
    top, error = found.top(5)
    assert top == pytest.approx(sorted(largest, key=abs, reverse=True), abs=1e-6)
    assert error < 1e-5


def test_few_steps_know_how_far_off_they_are() -> None:
    dense = matrix(SPREAD)
    for steps in (5, 8, 12):
        found = lanczos(times(dense), start(200), steps)
        for node, bound in zip(found.nodes, found.errors, strict=True):
            assert np.abs(SPREAD - node).min() <= bound + 1e-12


def test_quadrature_has_the_vectors_moments() -> None:
    dense, vector = matrix(SPREAD), start(200)
    found = lanczos(times(dense), vector, 10)
    unit, power = vector / vector.norm(), vector / vector.norm()
    for order in range(20):  # Gauss: exact up to degree 2 m - 1
        ours = np.dot(found.weights, np.power(found.nodes, order))
        assert ours == pytest.approx(float(unit @ power), rel=1e-9), order
        power = dense @ power


def test_probes_estimate_trace_and_shares() -> None:
    """Means over random vectors against the true spectrum, within four standard errors."""
    dense = matrix(SPREAD)
    found = [lanczos(times(dense), start(200, seed), 15) for seed in range(60)]
    for function in (lambda x: x, np.square, lambda x: x < -0.5):
        values = [np.dot(one.weights, function(np.array(one.nodes))) for one in found]
        error = np.std(values, ddof=1) / 60**0.5
        assert abs(np.mean(values) - function(SPREAD).mean()) < 4 * error


def test_it_ends_when_no_direction_is_left() -> None:
    eigenvalues = np.array([-1.0, 0.0, 2.0, 2.0])
    found = lanczos(times(matrix(eigenvalues)), start(4), 4)
    assert found.nodes == pytest.approx([-1, 0, 2], abs=1e-9)
    assert sum(found.weights) == pytest.approx(1)
    assert max(found.errors) < 1e-9
    nothing = lanczos(lambda vector: 0 * vector, start(4), 3)
    assert (nothing.nodes, nothing.weights) == ([0.0], [1.0])
