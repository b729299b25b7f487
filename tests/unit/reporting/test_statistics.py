import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from difftransformer.reporting.statistics import (
    fewest_deciding_seeds,
    mean_interval,
    sign_test_p,
    t_test_above,
    t_test_below,
    t_test_p,
    wilson_interval,
)

numbers = st.floats(-1e3, 1e3, allow_nan=False)
samples = st.lists(numbers, min_size=2, max_size=12)


@given(samples, st.sampled_from([0.8, 0.9, 0.95]))
def test_mean_and_interval_are_scipys(values: list[float], level: float) -> None:
    found = mean_interval(values, level)
    assert found.mean == pytest.approx(np.mean(values), abs=1e-9)
    assert found.std == pytest.approx(np.std(values, ddof=1), abs=1e-9)
    if np.std(values) > 1e-6:
        low, high = stats.t.interval(level, len(values) - 1, np.mean(values), stats.sem(values))
        assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9, abs=1e-9)


@given(samples, samples)
def test_p_value_of_differences_is_that_of_the_paired_t_test(
    a: list[float], b: list[float]
) -> None:
    n = min(len(a), len(b))
    differences = [x - y for x, y in zip(a[:n], b[:n], strict=True)]
    if np.std(differences) < 1e-6:
        return
    assert t_test_p(mean_interval(differences)) == pytest.approx(
        stats.ttest_rel(a[:n], b[:n]).pvalue, abs=1e-9
    )


@given(samples, numbers)
def test_one_sided_tests_are_complementary(values: list[float], mean: float) -> None:
    found = mean_interval(values)
    assert t_test_above(found, mean) + t_test_below(found, mean) == pytest.approx(1)


def test_one_value_has_no_spread() -> None:
    assert mean_interval([3.5]) == (3.5, None, None, None, 1)


def test_equal_values_have_a_point_for_an_interval() -> None:
    found = mean_interval([0.5, 0.5, 0.5])
    assert (found.low, found.high) == (0.5, 0.5)
    assert t_test_p(found) == 0.0
    assert t_test_p(found, 0.5) == 1.0


@given(st.integers(1, 40), st.data())
def test_wilson_interval_is_the_published_formula(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    low, high = wilson_interval(k, n)
    z, p = stats.norm.ppf(0.975), k / n
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert (low, high) == pytest.approx((centre - reach, centre + reach), abs=1e-9)
    assert 0 <= low <= p <= high <= 1


def test_sign_test_is_exact() -> None:
    assert sign_test_p(0, 0) == 1.0
    assert sign_test_p(3, 0) == pytest.approx(0.25)
    assert sign_test_p(6, 0) == pytest.approx(2 / 64)
    assert sign_test_p(7, 2) == pytest.approx(stats.binomtest(2, 9).pvalue)


@given(st.floats(0.001, 0.4))
def test_fewest_deciding_seeds_is_the_first_that_can_decide(alpha: float) -> None:
    n = fewest_deciding_seeds(alpha)
    assert sign_test_p(n, 0) < alpha
    assert n == 1 or sign_test_p(n - 1, 0) >= alpha
