"""Lanczos iteration on matrices with a known spectrum."""

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from difftransformer.evaluations.curvature.lanczos import MatVec, lanczos


def matrix(eigenvalues: np.ndarray, seed: int = 0) -> Tensor:
    """Return a symmetric matrix with these eigenvalues and random eigenvectors."""
    noise = np.random.default_rng(seed).standard_normal((len(eigenvalues),) * 2)
    basis = np.linalg.qr(noise)[0]
    return torch.from_numpy(basis * eigenvalues @ basis.T)


def matvec_of(dense: Tensor) -> MatVec:
    return lambda vector: dense @ vector


def start(size: int, seed: int = 1) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(size))


SPREAD = np.concatenate((np.linspace(-0.1, 0.1, 190), [-3, -1.5, -0.9, 0.8, 1.2, 2, 2.5, 4, 5, 7]))


def test_ends_and_top_are_those_of_lapack_and_arpack() -> None:
    dense = matrix(SPREAD)
    ritz = lanczos(matvec_of(dense), start(200), 25)
    exact = np.linalg.eigvalsh(dense.numpy())
    assert ritz.nodes[-1] == pytest.approx(exact[-1], abs=1e-8)
    assert ritz.nodes[0] == pytest.approx(exact[0], abs=1e-8)
    operator = LinearOperator(dense.shape, matvec=lambda x: dense.numpy() @ x, dtype=float)
    largest = eigsh(operator, k=5, which="LM", return_eigenvectors=False)
    top, error = ritz.top(5)
    assert top == pytest.approx(sorted(largest, key=abs, reverse=True), abs=1e-6)
    assert error < 1e-5


def test_errors_are_bounded_after_few_steps() -> None:
    dense = matrix(SPREAD)
    for steps in (5, 8, 12):
        ritz = lanczos(matvec_of(dense), start(200), steps)
        for node, bound in zip(ritz.nodes, ritz.errors, strict=True):
            assert np.abs(SPREAD - node).min() <= bound + 1e-12


def test_quadrature_is_exact_for_moments() -> None:
    dense, vector = matrix(SPREAD), start(200)
    ritz = lanczos(matvec_of(dense), vector, 10)
    unit, power = vector / vector.norm(), vector / vector.norm()
    for order in range(20):  # Gauss: exact up to degree 2 m - 1
        ours = np.dot(ritz.weights, np.power(ritz.nodes, order))
        assert ours == pytest.approx(float(unit @ power), rel=1e-9), order
        power = dense @ power


def test_probes_estimate_trace_and_fractions() -> None:
    """Means over random vectors against the true spectrum, within four standard errors."""
    dense = matrix(SPREAD)
    probes = [lanczos(matvec_of(dense), start(200, seed), 15) for seed in range(60)]
    for function in (lambda x: x, np.square, lambda x: x < -0.5):
        values = [np.dot(probe.weights, function(np.array(probe.nodes))) for probe in probes]
        error = np.std(values, ddof=1) / 60**0.5
        assert abs(np.mean(values) - function(SPREAD).mean()) < 4 * error


def test_it_stops_when_the_basis_is_complete() -> None:
    eigenvalues = np.array([-1.0, 0.0, 2.0, 2.0])
    ritz = lanczos(matvec_of(matrix(eigenvalues)), start(4), 4)
    assert ritz.nodes == pytest.approx([-1, 0, 2], abs=1e-9)
    assert sum(ritz.weights) == pytest.approx(1)
    assert max(ritz.errors) < 1e-9
    zero = lanczos(lambda vector: 0 * vector, start(4), 3)
    assert (zero.nodes, zero.weights) == ([0.0], [1.0])
