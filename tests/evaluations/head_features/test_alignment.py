"""Centered kernel alignment against its definition as a U-statistic, and its invariances."""

import itertools

import numpy as np
import pytest
import torch

from difftransformer.evaluations.head_features.alignment import Alignment, hsic


def slow(x: np.ndarray, y: np.ndarray) -> float:
    """Return HSIC_1 as a mean over quadruples of distinct samples, a U-statistic."""
    K, L = x @ x.T, y @ y.T
    n, total = len(x), 0.0
    for i, j, q, r in itertools.permutations(range(n), 4):
        total += K[i, j] * (L[i, j] + L[q, r] - 2 * L[i, q])
    return total / (n * (n - 1) * (n - 2) * (n - 3))


def test_hsic_equals_the_u_statistic() -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(3, 7, 2))
    features[1] += features[0]
    result = hsic(torch.from_numpy(features)).numpy()
    for i, j in itertools.product(range(3), repeat=2):
        assert result[i, j] == pytest.approx(slow(features[i], features[j]), rel=1e-9)


def test_rotated_and_scaled_features_are_fully_aligned() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64)).Q
    alignment = Alignment()
    alignment.add(torch.stack([x, -2.5 * x @ rotation + 4]))
    assert alignment.matrix()[0, 1] == pytest.approx(1.0, abs=1e-12)


def test_independent_features_have_no_alignment_at_any_batch_size() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2, 4000, 5, generator=generator)
    for size in (8, 40, 400):
        alignment = Alignment()
        for batch in features.split(size, dim=1):
            alignment.add(batch)
        matrix = alignment.matrix()
        assert abs(matrix[0, 1]) < 0.06
        assert matrix.diagonal().tolist() == pytest.approx([1, 1])


def test_a_constant_feature_has_no_alignment() -> None:
    alignment = Alignment()
    alignment.add(torch.stack([torch.ones(9, 2), torch.randn(9, 2)]))
    assert not torch.isfinite(alignment.matrix()[0, 1])
