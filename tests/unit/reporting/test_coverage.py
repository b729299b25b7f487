"""Coverage and error rates by simulation with known truth: seeds crossed with documents.

The long form, over many more designs, is `benchmarks/verdict_coverage.py`.
"""

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from verdict_simulation import Design, coverage, decided_wrongly

from difftransformer.reporting.censored import EventInterval, log_ratio
from difftransformer.reporting.statistics import holm

REPEATS = 1000
# Three standard errors of a share of 0.95 in so many repeats are 0.02.
LOWEST, HIGHEST = 0.93, 0.97

DESIGNS = [
    Design(seeds, documents, seed_share, interaction, skewed)
    for (seeds, documents), seed_share, interaction, skewed in product(
        [(3, 300), (5, 60), (10, 300)], [0.0, 0.5, 2.0], [0.5, 5.0], [False]
    )
] + [Design(3, 60, 0.5, 1.0, True), Design(5, 300, 1.0, 2.0, True)]


@pytest.mark.parametrize("design", DESIGNS, ids=str)
def test_intervals_have_their_nominal_coverage(design: Design) -> None:
    assert LOWEST < coverage(design, REPEATS) < HIGHEST


@pytest.mark.parametrize(
    ("design", "recorded"),
    [
        (Design(4, 30, 0.0, 0.0, True), 0.921),
        (Design(20, 30, 0.0, 0.0, True), 0.921),
        (Design(4, 30, 9.0, 0.0, True), 0.959),
        (Design(3, 30, 1.0, 0.0, False), 0.961),
        (Design(10, 300, 0.0, 0.0, True), 0.941),
    ],
    ids=str,
)
def test_the_documented_range_of_coverage_is_reproduced(
    design: Design, recorded: float, repository: Path
) -> None:
    """The lowest and the highest that it names, as the benchmark draws them."""
    tested = coverage(design, 3500)
    assert tested == pytest.approx(recorded, abs=0.002)
    page = (repository / "docs" / "verdicts.md").read_text().partition("Simulated coverage")[2]
    ranges = re.findall(r"([\d.]+)%\s+to\s+([\d.]+)%", page)
    low, high = ranges[design.documents == 30 and design.skewed]
    assert float(low) / 100 - 5e-4 <= tested <= float(high) / 100 + 5e-4


@pytest.mark.parametrize("test", ["difference", "equivalence", "noninferiority"])
@pytest.mark.parametrize("seeds", [3, 6])
def test_verdicts_have_at_most_their_nominal_error_rate(test: str, seeds: int) -> None:
    """At the truth that is hardest on it: no difference, or one right at the margin."""
    design = Design(seeds, 60, 0.5, 1.0, False)
    # Three standard errors above 0.05.
    assert decided_wrongly(design, test, 0.05, REPEATS) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / REPEATS)


@pytest.mark.parametrize("seeds", [3, 6])
def test_ratios_of_probed_times_have_at_most_their_nominal_error_rate(seeds: int) -> None:
    """Times of 330 steps that vary by 12%, seen by probes 20 steps apart."""
    drawn = np.exp(np.random.default_rng(seeds).normal(np.log(330), 0.12, (100, 2, seeds)))
    seen = [
        [
            [EventInterval(20 * (time // 20), 20 * (time // 20) + 20) for time in side]
            for side in pair
        ]
        for pair in drawn
    ]
    tested = [log_ratio(*pair) for pair in seen]
    wrong = np.mean([not (ratio and 0.025 <= ratio.above(0) <= 0.975) for ratio in tested])
    assert wrong < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 100)


def test_holm_controls_the_error_of_a_family() -> None:
    p_values = np.random.default_rng(0).uniform(size=(4000, 8))
    wrong = np.mean([min(holm(family)).p_value < 0.05 for family in p_values.tolist()])
    assert wrong < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 4000)
    # Each is at least its own p-value, and they keep their order.
    for family in p_values[:50].tolist():
        adjusted = [adjusted.p_value for adjusted in holm(family)]
        assert all(after >= before for after, before in zip(adjusted, family, strict=True))
        assert (
            np.argsort(adjusted, kind="stable").tolist()
            == np.argsort(np.minimum(adjusted, 1), kind="stable").tolist()
        )


def test_holm_of_a_family_by_hand() -> None:
    tested = holm([0.01, 0.04, 0.03, 0.5])
    assert [adjusted.p_value for adjusted in tested] == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert [adjusted.divisor for adjusted in tested] == [4, 2, 3, 1]
    assert holm([]) == []
