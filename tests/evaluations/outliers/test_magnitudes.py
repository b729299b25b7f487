"""A running summary equals the summary of all values."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from difftransformer.evaluations.outliers.magnitudes import MEDIAN_ERROR, Magnitudes


def summary(parts: list[torch.Tensor], keep: int = 5) -> Magnitudes:
    magnitudes = Magnitudes(keep)
    for part in parts:
        magnitudes.update(part)
    return magnitudes


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.integers(0, 2**16),
    st.sampled_from([1e-4, 1.0, 1e4]),
)
def test_largest_are_exact_and_the_median_is_within_its_error(
    sizes: list[int], seed: int, scale: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(size, generator=generator) * scale for size in sizes]
    together = torch.cat(parts).abs()
    magnitudes = summary(parts)
    assert magnitudes.number == len(together)
    for rank, value in enumerate(together.topk(min(5, len(together))).values.tolist(), start=1):
        assert magnitudes.largest(rank) == value
    assert magnitudes.median() == pytest.approx(float(together.median()), rel=1.001 * MEDIAN_ERROR)


def test_zeros_count_and_an_empty_summary_has_no_median() -> None:
    magnitudes = summary([torch.zeros(3, 2), torch.tensor([5.0])])
    assert (magnitudes.median(), magnitudes.largest(1), magnitudes.largest(2)) == (0.0, 5.0, 0.0)
    magnitudes = summary([torch.zeros(2), torch.tensor([1.0, 2.0, 3.0])])
    assert magnitudes.median() == pytest.approx(1.0, rel=1.001 * MEDIAN_ERROR)
    magnitudes = summary([torch.tensor([1e-20, 7.0, 1e20])])
    assert (magnitudes.number, magnitudes.largest(1)) == (3, pytest.approx(1e20))
    assert magnitudes.median() == pytest.approx(7.0, rel=1.001 * MEDIAN_ERROR)
    empty = Magnitudes(2)
    assert (empty.median(), empty.largest(1), empty.histogram()) == (None, None, ([], []))


@pytest.mark.parametrize("odd", [float("inf"), float("-inf"), float("nan")])
def test_nonfinite_values_rank_as_largest(odd: float) -> None:
    """The job then reports the nonfinite metric."""
    largest = summary([torch.tensor([1.0, odd, 2.0])]).largest(1)
    assert largest is not None and not math.isfinite(largest)


def test_histogram_counts_every_value_once() -> None:
    edges, counts = summary([torch.tensor([0.02, 0.5, 0.51, 30.0])]).histogram(per_decade=1)
    assert edges == pytest.approx([0.01, 0.1, 1.0, 10.0])
    assert counts == [1, 2, 0, 1]
