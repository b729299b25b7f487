"""Ratios of times known within intervals, against tests that know the times."""

import math

import numpy as np
import pytest
from scipy import stats

from difftransformer.reporting.censored import CensoredContrast, EventInterval, log_ratio

RANDOM = np.random.default_rng(7)
NEVER = math.inf


def seen(times: list[float], width: float) -> list[EventInterval]:
    return [EventInterval(time - width, time) for time in times]


def at(time: float) -> EventInterval:
    """Time of an event that probes every 20 steps detect; NEVER: not within 2,000 steps."""
    return EventInterval(2000, NEVER) if time == NEVER else EventInterval(time - 20, time)


@pytest.mark.parametrize("seeds", [2, 3, 6, 12])
def test_exact_times_give_the_paired_t_test_of_logarithms(seeds: int) -> None:
    ours, theirs = RANDOM.uniform(200, 900, (2, seeds)).tolist()
    contrast = log_ratio(seen(ours, 1e-3), seen(theirs, 1e-3))
    assert contrast is not None
    logs = np.log(np.array(ours) / np.array(theirs))
    expected = stats.ttest_1samp(logs, 0.0)
    assert contrast.effect == pytest.approx(logs.mean(), abs=1e-4)
    assert contrast.beyond(0.0) == pytest.approx(expected.pvalue, rel=1e-3)
    assert contrast.interval() == pytest.approx(expected.confidence_interval(0.95), abs=2e-3)
    within = stats.ttest_1samp(logs, -0.2, alternative="greater").pvalue
    assert contrast.above(-0.2) == pytest.approx(within, rel=1e-3)
    assert contrast.above(0.3) + contrast.below(0.3) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("ours", "theirs", "mean", "deviation", "likelihood"),
    [
        pytest.param(
            [320, 360, 300, 420], [340, 400, 300, 380],
            -0.016122017902860688, 0.07402153671483855, -4.153891911666336, id="intervals",
        ),
        pytest.param(
            [320, 360, 300, 420, 340], [900, 800, NEVER, 700, NEVER],
            -1.4293469146153446, 0.8401781884951223, -12.993182649851228, id="left-censored",
        ),
        pytest.param(
            [900, 800, NEVER, 700, NEVER], [320, 360, 300, 420, 340],
            1.4293798243682119, 0.8401403485582555, -12.99318264659625, id="right-censored",
        ),
        pytest.param(
            [900, NEVER, 300, 700, 340], [320, 360, NEVER, 420, 340],
            0.3122555726423091, 1.9379599572114388, -15.452098162987289, id="both",
        ),
    ],
)  # fmt: skip
def test_mean_and_likelihood_equal_those_of_lifelines(
    ours: list[float], theirs: list[float], mean: float, deviation: float, likelihood: float
) -> None:
    """LogNormalFitter().fit_interval_censoring of lifelines 0.30.3 on ratios gave the numbers.

    That version needs pandas below 3, so it is not installed with the tests. Its mean is within
    3e-5 of the maximum-likelihood estimate.
    """
    fitted = log_ratio(*([at(time) for time in times] for times in (ours, theirs)))
    assert isinstance(fitted, CensoredContrast)
    assert fitted._log_likelihood(mean, deviation) == pytest.approx(likelihood, abs=1e-11)
    assert fitted._best == pytest.approx((mean, likelihood), abs=3e-5)


def test_a_censored_time_bounds_the_ratio_on_one_side() -> None:
    ours = seen([320, 340, 300, 330], 20)
    theirs = [EventInterval(2000, NEVER), *seen([900, 980, 1000], 20)]
    contrast = log_ratio(ours, theirs)
    assert contrast is not None and contrast.lows[0] == -math.inf
    assert contrast.highs[0] == pytest.approx(math.log(320 / 2000))
    low, high = contrast.interval()
    assert low is not None and high is not None and low < contrast.effect < high < 0


@pytest.mark.parametrize("mean", [-9.0, 9.0])
def test_a_mean_far_from_all_intervals_is_rejected(mean: float) -> None:
    contrast = log_ratio(seen([320, 340, 300], 20), seen([330, 340, 310], 20))
    assert contrast is not None
    assert min(contrast.above(mean), contrast.below(mean)) < 1e-3


def test_uninformative_pairs_are_excluded() -> None:
    never, first = EventInterval(2000, NEVER), EventInterval(0, 20)
    assert log_ratio([never, first], [never, first]) is None
    contrast = log_ratio([never, *seen([300, 320], 20)], [never, *seen([600, 660], 20)])
    assert contrast is not None and contrast.seeds == 2
    alone = log_ratio(seen([300], 20), seen([600], 20))
    assert alone is not None and alone.interval() == (None, None) and alone.beyond(0) == 1.0


def test_where_no_baseline_was_reached_the_interval_is_open() -> None:
    contrast = log_ratio(seen([320, 340, 300, 360, 320, 340], 20), [EventInterval(2000, NEVER)] * 6)
    assert contrast is not None
    low, high = contrast.interval()
    assert low == -math.inf and high is not None and high < math.log(0.2)
    # Six of six on one side are worth what a sign test of six gives, or less than that.
    assert 0.5**7 < contrast.beyond(0.0) < 0.5**5
