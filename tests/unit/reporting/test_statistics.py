import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from difftransformer.reporting.statistics import (
    ItemVariance,
    paired_contrast,
    survival,
    wilson_interval,
)

numbers = st.floats(-1e3, 1e3, allow_nan=False)
samples = st.lists(numbers, min_size=2, max_size=12)
measured = st.lists(numbers.map(lambda number: round(number, 3)), min_size=2, max_size=12)
"""Nothing so small that it counts as rounding."""


@given(measured, st.sampled_from([0.8, 0.9, 0.95]))
def test_mean_and_interval_are_scipys(values: list[float], level: float) -> None:
    contrast = paired_contrast(values)
    assert contrast.effect == pytest.approx(np.mean(values), abs=1e-9)
    assert contrast.deviation == pytest.approx(np.std(values, ddof=1), abs=1e-9)
    if np.std(values) > 1e-6:
        low, high = stats.t.interval(level, len(values) - 1, np.mean(values), stats.sem(values))
        assert contrast.interval(level) == pytest.approx((low, high), rel=1e-9, abs=1e-9)


@given(samples, numbers)
def test_one_sided_tests_are_complementary(values: list[float], mean: float) -> None:
    contrast = paired_contrast(values)
    if contrast.standard_error:
        assert contrast.above(mean) + contrast.below(mean) == pytest.approx(1)


def test_one_value_has_no_spread() -> None:
    contrast = paired_contrast([3.5])
    assert (contrast.effect, contrast.deviation, contrast.seeds) == (3.5, None, 1)
    assert contrast.interval() == (None, None)
    assert paired_contrast([3.5], item_variance=ItemVariance(1.0, 99)).interval() == (None, None)


def test_equal_values_have_no_interval() -> None:
    contrast = paired_contrast([0.5, 0.5, 0.5])
    assert (contrast.effect, contrast.deviation, contrast.interval()) == (0.5, 0.0, (None, None))
    assert paired_contrast([0.5] * 3, item_variance=ItemVariance(1.0, 99)).interval() != (
        None,
        None,
    )
    assert paired_contrast([0.5] * 3).beyond(0) == 2 * 0.5**3
    assert paired_contrast([0.5] * 3).beyond(0.5) == 1.0


@given(st.integers(1, 40), st.data())
def test_wilson_interval_is_the_published_formula(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    low, high = wilson_interval(k, n)
    z, p = stats.norm.ppf(0.975), k / n
    center = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert (low, high) == pytest.approx((center - reach, center + reach), abs=1e-9)
    assert 0 <= low <= p <= high <= 1


def test_survival_is_the_product_limit() -> None:
    """Six at risk at 6, then one is censored, so four at 10, and two at 15."""
    contrast = survival([6.0, 10.0, 10.0, 15.0], [7.0, 16.0])
    assert contrast.times.tolist() == [6, 7, 10, 15, 16]
    by_hand = [5 / 6, 5 / 6, 5 / 6 * 2 / 4, 5 / 6 * 2 / 4 * 1 / 2, 5 / 6 * 2 / 4 * 1 / 2]
    assert contrast.shares.tolist() == pytest.approx(by_hand)
    assert contrast.median == 10


@given(st.lists(st.integers(1, 50).map(float), min_size=1, max_size=12))
def test_median_of_uncensored_times_equals_numpys(times: list[float]) -> None:
    assert survival(times, []).median == np.median(times)


@pytest.mark.parametrize(
    ("times", "censored", "median"),
    [
        ([1.0, 2.0, 3.0], [9.0], 2.5),  # half of them until 3
        ([1.0, 2.0], [9.0, 9.0], None),  # half of them for all that is known
        ([5.0], [9.0, 9.0], None),
        ([], [9.0], None),
        ([4.0], [1.0, 2.0], 4.0),
    ],
)
def test_median_with_censored_times(
    times: list[float], censored: list[float], median: float | None
) -> None:
    assert survival(times, censored).median == median
