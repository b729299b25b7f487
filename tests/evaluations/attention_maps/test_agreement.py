"""Agreement of rows against scipy, row by row."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine, jensenshannon
from scipy.stats import kstest, pearsonr, rankdata, spearmanr, uniform

from difftransformer.evaluations.attention_maps.agreement import (
    agreement,
    alike_everywhere,
    entropy,
    most_salient,
    ranked,
    ranks,
    shares,
    without_order,
)


def agree(first: torch.Tensor, second: torch.Tensor, seen: torch.Tensor) -> dict[str, torch.Tensor]:
    return agreement(ranked(first, seen), ranked(second, seen), seen)


def drawn_beside(first: torch.Tensor, second: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """A map alike everywhere."""
    noise = without_order(torch.arange(first.numel()).view(first.shape))
    return alike_everywhere(first, second, seen, noise)


SEEN = torch.ones(9, 40, dtype=torch.bool).tril(diagonal=31)


def rows(seed: int, *, ties: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(2, 3, 9, 40, generator=generator, dtype=torch.float64).mul(3).softmax(-1)
    return (values * 30).round() if ties else values  # most are 0


@pytest.mark.parametrize("ties", [False, True])
def test_every_kind_is_that_of_scipy(ties: bool) -> None:
    first, second = rows(0, ties=ties), rows(1, ties=ties)
    found = agree(first, second, SEEN.expand_as(first))
    for place in np.ndindex(2, 3, 9):
        x, y = (side[place][SEEN[place[-1]]].numpy() for side in (first, second))
        expected = {
            "rank": spearmanr(x, y).statistic,
            "pearson": pearsonr(x, y).statistic,
            "js": jensenshannon(x, y) ** 2,
            "cosine": cosine(x, y),
        }
        for kind, value in expected.items():
            assert found[kind][place] == pytest.approx(value, rel=1e-9, abs=1e-14), kind


def test_equal_values_share_their_rank() -> None:
    values = rows(2, ties=True)
    found = ranks(values, SEEN.expand_as(values))
    for place in np.ndindex(2, 3, 9):
        seen = SEEN[place[-1]]
        np.testing.assert_array_equal(found[place][seen], rankdata(values[place][seen]))


def test_what_a_row_leaves_undefined_is_nan() -> None:
    flat, zeros = torch.full((1, 5), 0.2), torch.zeros(1, 5)
    other = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.0]])
    flat, zeros, other = flat.double(), zeros.double(), other.double()
    seen = torch.ones(1, 5, dtype=torch.bool)
    against_flat = agree(flat, other, seen)
    assert math.isnan(against_flat["rank"]) and math.isnan(against_flat["pearson"])
    assert not math.isnan(against_flat["js"]) and not math.isnan(against_flat["cosine"])
    assert all(math.isnan(one) for one in agree(other, zeros, seen).values())


def test_a_map_agrees_with_itself() -> None:
    found = agree(rows(3), rows(3), SEEN.expand(2, 3, 9, 40))
    for kind, best in (("rank", 1), ("pearson", 1), ("js", 0), ("cosine", 0)):
        torch.testing.assert_close(found[kind], torch.full((2, 3, 9), best).double())


@pytest.mark.parametrize("share", [0.05, 0.1, 0.25])
def test_the_most_salient_are_a_share_of_those_seen(share: float) -> None:
    values = rows(4)
    at, counted = most_salient(values, SEEN, share)
    for place in np.ndindex(2, 3, 9):
        visible = int(SEEN[place[-1]].sum())
        slow = np.argsort(-values[place][:visible].numpy(), kind="stable")
        number = math.ceil(round(share * visible, 6))
        assert at[place][counted[place[-1]]].tolist() == slow[:number].tolist()


def test_entropy_of_signed_rows_is_that_of_their_sizes() -> None:
    row = torch.tensor([[0.5, -0.5, 1.0, 7.0]]).double()
    seen = torch.tensor([[True, True, True, False]])
    expected = -(2 * 0.25 * math.log(0.25) + 0.5 * math.log(0.5))
    assert float(entropy(shares(row, seen))) == pytest.approx(expected)


def test_numbers_without_order_are_uniform_and_independent() -> None:
    found = without_order(torch.arange(200_000)).numpy() / 2.0**64
    assert kstest(found, uniform(-0.5, 1).cdf).pvalue > 0.01
    for lag in (1, 2, 64, 4096):
        assert abs(pearsonr(found[:-lag], found[lag:]).statistic) < 0.01
    assert torch.equal(without_order(torch.arange(5, 9)), without_order(torch.arange(9))[5:])


def two_maps(correlation: float, tokens: int, number: int = 20_000) -> list[torch.Tensor]:
    """Maps whose logits are normal, correlated alike for all tokens."""
    draw = torch.Generator().manual_seed(tokens)
    x, noise = torch.randn(2, number, tokens, generator=draw, dtype=torch.float64)
    y = correlation * x + math.sqrt(1 - correlation**2) * noise
    return [x.softmax(-1), (1.5 * y).softmax(-1)]


def changes(first: torch.Tensor, second: torch.Tensor) -> dict[str, torch.Tensor]:
    """By how much the agreement on salient tokens differs from that on all, by kind and row."""
    seen = torch.ones(first.shape, dtype=torch.bool)
    at, counted = most_salient(first, seen[0].expand(len(first), -1), 0.05)
    top = agree(first.gather(-1, at), second.gather(-1, at), counted.expand_as(at))
    every = agree(first, second, seen)
    return {kind: top[kind] - every[kind] for kind in top}


@pytest.mark.parametrize(("correlation", "tokens"), [(0.0, 61), (0.6, 94), (0.9, 61), (0.97, 128)])
def test_maps_that_are_alike_everywhere_differ_no_more_than_those_drawn(
    correlation: float, tokens: int
) -> None:
    first, second = two_maps(correlation, tokens)
    found = changes(first, second)
    drawn = changes(first, drawn_beside(first, second, torch.ones(first.shape, dtype=torch.bool)))
    # What looks like an effect of salience: kinds change by themselves.
    assert max(abs(float(one.mean())) for one in found.values()) > 0.2
    for kind, values in found.items():
        beyond = values - drawn[kind]
        error = float(beyond.std()) / math.sqrt(len(beyond))
        assert abs(float(beyond.mean())) < 4 * error, kind
        assert error < 0.006


def test_maps_that_part_where_weights_are_large_do_so_beyond_those_drawn() -> None:
    first, second = two_maps(0.8, 94, 4000)
    at = first.topk(10).indices
    shuffled = second.scatter(-1, at, second.gather(-1, at.flip(-1)))
    found = changes(first, shuffled)
    drawn = changes(first, drawn_beside(first, shuffled, torch.ones(first.shape, dtype=torch.bool)))
    for kind in ("rank", "pearson"):
        assert float((found[kind] - drawn[kind]).mean()) < -0.1


def test_a_map_that_is_drawn_keeps_to_what_is_seen() -> None:
    first, second = rows(5), rows(6)
    drawn = drawn_beside(first, second, SEEN)
    seen = SEEN.expand_as(first)
    assert (drawn[~seen] == 0).all() and (drawn[seen] > 0).all()
    torch.testing.assert_close(drawn.sum(-1), torch.ones(2, 3, 9).double())
    for place in np.ndindex(2, 3, 9):
        x, y, found = (one[place][SEEN[place[-1]]].log() for one in (first, second, drawn))
        line = np.polynomial.Polynomial.fit(x, y, 1)(x.numpy())
        apart = found.numpy() - line
        np.testing.assert_allclose(
            np.sort(apart - apart.mean()), np.sort(y.numpy() - line), atol=1e-9
        )
    assert drawn_beside(torch.full_like(first, 0.2), second, SEEN).isnan().all()
    assert drawn_beside(first, second.index_fill(-1, torch.tensor(0), 0.0), SEEN).isnan().all()
