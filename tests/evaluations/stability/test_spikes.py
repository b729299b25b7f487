"""Planted spikes are found, and no others, whatever the scale of the series."""

import random

import pytest

from difftransformer.evaluations.stability.spikes import spikes

WINDOW, THRESHOLD = 20, 5.0


def noisy(length: int, seed: int) -> list[float]:
    """Return a falling curve with Gaussian noise, like a loss."""
    noise = random.Random(seed)
    return [4.0 - 0.002 * step + noise.gauss(0, 0.05) for step in range(length)]


@pytest.mark.parametrize("seed", range(5))
def test_every_planted_spike_is_found_and_no_other(seed: int) -> None:
    indices = sorted(random.Random(f"indices{seed}").sample(range(WINDOW, 300), 6))
    series = noisy(300, seed)
    assert spikes(series, WINDOW, 8.0) == []
    for index in indices:
        series[index] += 1.5
    assert spikes(series, WINDOW, 8.0) == indices


@pytest.mark.parametrize("seed", range(5))
def test_shift_and_scale_change_nothing(seed: int) -> None:
    series = noisy(300, seed)
    result = spikes(series, WINDOW, 1.5)
    assert result  # at so few deviations noise alone has some
    assert spikes([64 * value for value in series], WINDOW, 1.5) == result
    assert spikes([value - 8.0 for value in series], WINDOW, 1.5) == result


def test_the_first_values_and_a_drop_are_no_spikes() -> None:
    series = [1.0, 1.1] * 20
    series[3] = 100.0
    series[30] = -100.0
    assert spikes(series, WINDOW, THRESHOLD) == []
    assert spikes(series[:WINDOW], WINDOW, THRESHOLD) == []


def test_a_lasting_rise_counts_until_it_is_the_median() -> None:
    series = [1.0 + 0.01 * (step % 3) for step in range(40)] + [5.0] * 40
    assert spikes(series, WINDOW, THRESHOLD) == list(range(40, 50))


@pytest.mark.parametrize(("last", "expected"), [(3.4, []), (3.6, [3])])
def test_the_window_has_its_length_and_ends_before_the_value(
    last: float, expected: list[int]
) -> None:
    # Median 2, median deviation 1: a spike is above 2 + 1.4826, at the first tested index.
    assert spikes([5.0, 1.0, 2.0, last], 3, 1.0) == expected
