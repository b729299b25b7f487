"""Similarity of rows against scipy, row by row, and the surrogate maps."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine, jensenshannon
from scipy.stats import kstest, pearsonr, rankdata, spearmanr, uniform

from difftransformer.evaluations.attention_maps.map_similarity import (
    most_salient,
    rank_map,
    ranks,
    similarity,
    splitmix64,
    surrogate_map,
)

MASK = torch.ones(9, 40, dtype=torch.bool).tril(diagonal=31)


def compare(
    first: torch.Tensor, second: torch.Tensor, mask: torch.Tensor
) -> dict[str, torch.Tensor]:
    return similarity(rank_map(first, mask), rank_map(second, mask), mask)


def surrogate_of(
    first: torch.Tensor, second: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    noise = splitmix64(torch.arange(first.numel()).view(first.shape))
    mask = torch.ones(first.shape, dtype=torch.bool) if mask is None else mask
    return surrogate_map(first, second, mask, noise)


def rows(seed: int, *, ties: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(2, 3, 9, 40, generator=generator, dtype=torch.float64).mul(3).softmax(-1)
    return (values * 30).round() if ties else values  # most are 0


@pytest.mark.parametrize("ties", [False, True])
def test_every_measure_equals_scipy(ties: bool) -> None:
    first, second = rows(0, ties=ties), rows(1, ties=ties)
    result = compare(first, second, MASK.expand_as(first))
    rank = ranks(first, MASK.expand_as(first))
    for index in np.ndindex(2, 3, 9):
        mask = MASK[index[-1]]
        x, y = (values[index][mask].numpy() for values in (first, second))
        expected = {
            "spearman": spearmanr(x, y).statistic,
            "pearson": pearsonr(x, y).statistic,
            "js": jensenshannon(x, y) ** 2,
            "cosine": cosine(x, y),
        }
        for measure, value in expected.items():
            assert result[measure][index] == pytest.approx(value, rel=1e-9, abs=1e-14), measure
        np.testing.assert_array_equal(rank[index][mask], rankdata(x))


def test_undefined_measures_are_nan() -> None:
    flat, zeros = torch.full((1, 5), 0.2), torch.zeros(1, 5)
    other = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.0]])
    flat, zeros, other = flat.double(), zeros.double(), other.double()
    mask = torch.ones(1, 5, dtype=torch.bool)
    with_flat = compare(flat, other, mask)
    assert math.isnan(with_flat["spearman"]) and math.isnan(with_flat["pearson"])
    assert not math.isnan(with_flat["js"]) and not math.isnan(with_flat["cosine"])
    assert all(math.isnan(value) for value in compare(other, zeros, mask).values())


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.25])
def test_most_salient_takes_a_fraction_of_the_visible_tokens(fraction: float) -> None:
    values = rows(4)
    indices, valid = most_salient(values, MASK, fraction)
    for index in np.ndindex(2, 3, 9):
        visible = int(MASK[index[-1]].sum())
        order = np.argsort(-values[index][:visible].numpy(), kind="stable")
        count = math.ceil(round(fraction * visible, 6))
        assert indices[index][valid[index[-1]]].tolist() == order[:count].tolist()


def test_splitmix64_is_uniform_and_independent() -> None:
    numbers = splitmix64(torch.arange(200_000)).numpy() / 2.0**64
    assert kstest(numbers, uniform(-0.5, 1).cdf).pvalue > 0.01
    for lag in (1, 2, 64, 4096):
        assert abs(pearsonr(numbers[:-lag], numbers[lag:]).statistic) < 0.01
    assert torch.equal(splitmix64(torch.arange(5, 9)), splitmix64(torch.arange(9))[5:])


def two_maps(correlation: float, tokens: int, number: int = 20_000) -> list[torch.Tensor]:
    """Return maps with normal logits that are equally correlated at all tokens."""
    generator = torch.Generator().manual_seed(tokens)
    x, noise = torch.randn(2, number, tokens, generator=generator, dtype=torch.float64)
    y = correlation * x + math.sqrt(1 - correlation**2) * noise
    return [x.softmax(-1), (1.5 * y).softmax(-1)]


def changes(first: torch.Tensor, second: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the similarity on salient tokens minus that on all, by measure and row."""
    mask = torch.ones(first.shape, dtype=torch.bool)
    indices, valid = most_salient(first, mask[0].expand(len(first), -1), 0.05)
    top = compare(first.gather(-1, indices), second.gather(-1, indices), valid.expand_as(indices))
    every = compare(first, second, mask)
    return {measure: top[measure] - every[measure] for measure in top}


@pytest.mark.parametrize(("correlation", "tokens"), [(0.0, 61), (0.6, 94), (0.9, 61), (0.97, 128)])
def test_equally_similar_maps_change_as_their_surrogates(correlation: float, tokens: int) -> None:
    first, second = two_maps(correlation, tokens)
    result = changes(first, second)
    surrogate = changes(first, surrogate_of(first, second))
    # What looks like an effect of salience: measures change by themselves.
    assert max(abs(float(values.mean())) for values in result.values()) > 0.2
    for measure, values in result.items():
        excess = values - surrogate[measure]
        error = float(excess.std()) / math.sqrt(len(excess))
        assert abs(float(excess.mean())) < 4 * error, measure
        assert error < 0.006


def test_maps_that_differ_where_weights_are_large_change_beyond_their_surrogates() -> None:
    first, second = two_maps(0.8, 94, 4000)
    largest = first.topk(10).indices
    shuffled = second.scatter(-1, largest, second.gather(-1, largest.flip(-1)))
    result = changes(first, shuffled)
    surrogate = changes(first, surrogate_of(first, shuffled))
    for measure in ("spearman", "pearson"):
        assert float((result[measure] - surrogate[measure]).mean()) < -0.1


def test_a_surrogate_map_permutes_residuals_within_the_mask() -> None:
    first, second = rows(5), rows(6)
    surrogate = surrogate_of(first, second, MASK)
    mask = MASK.expand_as(first)
    assert (surrogate[~mask] == 0).all() and (surrogate[mask] > 0).all()
    torch.testing.assert_close(surrogate.sum(-1), torch.ones(2, 3, 9).double())
    for index in np.ndindex(2, 3, 9):
        x, y, z = (
            values[index][MASK[index[-1]]].log().numpy() for values in (first, second, surrogate)
        )
        line = np.polynomial.Polynomial.fit(x, y, 1)(x)
        residuals = z - line
        np.testing.assert_allclose(
            np.sort(residuals - residuals.mean()), np.sort(y - line), atol=1e-9
        )
    assert surrogate_of(torch.full_like(first, 0.2), second, MASK).isnan().all()
    with_zero = second.index_fill(-1, torch.tensor(0), 0.0)
    assert surrogate_of(first, with_zero, MASK).isnan().all()
