import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from judging import claim, claims_of, evidence, times, verdict
from scipy import stats

from difftransformer.config.registry import ClaimContrast
from difftransformer.reporting.claim_tests import seeds_needed
from difftransformer.reporting.site.sparklines import sparkline
from difftransformer.reporting.statistics import paired_contrast
from difftransformer.reporting.verdict_job import summarize
from difftransformer.reporting.verdicts import decide

values = st.lists(st.floats(-5, 5, allow_nan=False), min_size=3, max_size=8)
directions = st.sampled_from(["lower", "higher"])
OPPOSITE = {"lower": "higher", "higher": "lower"}
MIRROR = {"reproduced": "opposite", "opposite": "reproduced"}
BOTH = [
    ClaimContrast(metric="m", row="x", baseline="y", name="one"),
    ClaimContrast(metric="n", row="x", baseline="y", name="other"),
]
LOWER, HIGHER = [-1.0, -1.1, -0.9], [1.0, 1.1, 0.9]


@given(values, directions)
def test_the_opposite_claim_has_the_mirrored_verdict(numbers: list[float], side: str) -> None:
    one = verdict(claim(direction=side), evidence(numbers))
    two = verdict(claim(direction=OPPOSITE[side]), evidence(numbers))
    assert two.verdict == MIRROR.get(one.verdict, one.verdict)


@given(values, directions)
def test_swapping_the_rows_mirrors_the_verdict(numbers: list[float], side: str) -> None:
    zeros = [0.0] * len(numbers)
    one = verdict(claim(direction=side), evidence(numbers, zeros))
    two = verdict(claim(direction=side), evidence(zeros, numbers))
    assert two.verdict == MIRROR.get(one.verdict, one.verdict)


@given(values, directions)
def test_a_verdict_is_that_of_its_interval(numbers: list[float], side: str) -> None:
    found = verdict(claim(direction=side), evidence(numbers))
    low, high = found.contrasts[0].ci_low, found.contrasts[0].ci_high
    assume(low is not None and high is not None)
    assert low is not None and high is not None
    assert (found.verdict in MIRROR) == (low > 0 or high < 0)


@given(values)
def test_seeds_alone_are_scipys_paired_t_test(numbers: list[float]) -> None:
    assume(max(numbers) - min(numbers) > 1e-3)
    found = verdict(claim(), evidence(numbers))
    assert found.p == pytest.approx(stats.ttest_1samp(numbers, 0).pvalue, rel=1e-6, abs=1e-12)


@given(values, st.floats(0.001, 3), st.floats(0.001, 3))
def test_a_wider_margin_never_makes_a_difference(
    numbers: list[float], one: float, two: float
) -> None:
    narrow, wide = sorted((one, two))
    first, second = (
        verdict(claim("equivalence", margin=margin), evidence(numbers)).verdict
        for margin in (narrow, wide)
    )
    assert first != "no difference" or second == "no difference"
    assert second not in MIRROR or first == second
    first, second = (
        verdict(claim("noninferiority", margin=margin), evidence(numbers)).verdict
        for margin in (narrow, wide)
    )
    assert first != "reproduced" or second == "reproduced"
    assert second != "opposite" or first == "opposite"


@pytest.mark.parametrize(
    ("differences", "words"),
    [
        ([0.001, -0.001, 0.0005], "no difference (within ±0.01)"),
        ([0.5, 0.51, 0.49], "opposite"),
        ([-0.5, -0.51, -0.49], "reproduced"),
        ([0.0, 0.05, -0.05], "inconclusive"),
    ],
)
def test_equivalence(differences: list[float], words: str) -> None:
    found = verdict(claim("equivalence"), evidence(differences))
    assert found.words == (words if words == "inconclusive" else f"{words} at this scale")


@pytest.mark.parametrize(
    ("signed", "absolute", "words"),
    [
        (LOWER, LOWER, "reproduced at this scale"),
        (HIGHER, HIGHER, "opposite at this scale"),
        (LOWER, HIGHER, "turns at this scale"),
        (LOWER, [-1.0, 0.9, 0.2], "inconclusive"),
    ],
)
def test_two_contrasts_decide_together(
    signed: list[float], absolute: list[float], words: str
) -> None:
    asked = claim(contrasts=BOTH, mixed="turns")
    found = verdict(asked, evidence(signed), evidence(absolute))
    assert found.words == words
    alone = [one.p for one in found.contrasts]
    assert found.p == max(one for one in alone if one is not None)


def test_two_contrasts_that_differ_decide_nothing_where_that_has_no_meaning() -> None:
    equal = evidence([0.001, 0.0, -0.001])
    found = verdict(claim("equivalence", contrasts=BOTH), equal, evidence(LOWER))
    assert (found.verdict, found.p) == ("inconclusive", 1.0)
    assert "contrasts support different verdicts" in found.reason


def test_a_verdict_on_models_of_the_papers_size_is_not_of_this_scale_only() -> None:
    large = {"parameters": [2_000_000_000] * 2, "tokens": [20_000_000_000] * 2}
    assert verdict(claim(), evidence(LOWER, **large)).words == "reproduced"
    for name in large:
        small = large | {name: [1_000, 2_000_000_000]}
        assert verdict(claim(), evidence(LOWER, **small)).words == "reproduced at this scale"


def test_an_estimate_has_an_interval_and_no_test() -> None:
    found = verdict(claim(None), evidence(LOWER))
    assert (found.verdict, found.p, found.p_adjusted) == ("estimate", None, None)
    assert found.contrasts[0].ci_low is not None and "p =" not in found.reason


def test_noninferiority_minds_only_the_worse_side() -> None:
    better, worse = [0.5, 0.6, 0.55], [-0.5, -0.6, -0.55]
    higher = claim("noninferiority", direction="higher", margin=0.05)
    assert verdict(higher, evidence(better)).verdict == "reproduced"
    assert verdict(higher, evidence(worse)).verdict == "opposite"
    lower = claim("noninferiority", direction="lower", margin=0.05)
    assert verdict(lower, evidence(better)).verdict == "opposite"
    assert verdict(lower, evidence(worse)).verdict == "reproduced"
    around = [-0.03, -0.05, -0.07]  # all worse, by about the margin
    assert verdict(higher, evidence(around)).verdict == "inconclusive"
    assert verdict(lower, evidence([-one for one in around])).verdict == "inconclusive"


@pytest.mark.parametrize("number", [1, 2])
def test_few_seeds_show_a_direction_and_decide_nothing(number: int) -> None:
    found = verdict(claim(), evidence([-1.0, -1.1][:number]))
    assert (found.verdict, found.p) == ("inconclusive", None)
    assert found.seeds_needed == 3
    assert found.reason.startswith("−1.") and "p =" not in found.reason


def test_differences_without_variance_are_worth_a_sign_test() -> None:
    assert verdict(claim(), evidence([-1.0] * 5)).verdict == "inconclusive"
    found = verdict(claim(), evidence([-1.0] * 6))
    assert (found.verdict, found.p) == ("reproduced", 2 * 0.5**6)
    assert (found.contrasts[0].ci_low, found.contrasts[0].ci_high) == (None, None)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([0.9, 0.8, 0.7], [0.5, 0.4, 0.3]),
        ([100 * n / 30 for n in (20, 21, 22)], [100 * n / 30 for n in (19, 20, 21)]),
        ([0.1 * n for n in range(1, 7)], [0.1 * n + 0.3 for n in range(1, 7)]),
    ],
)
def test_differences_that_rounding_alone_tells_apart_are_equal(
    ours: list[float], theirs: list[float]
) -> None:
    assert len({one - two for one, two in zip(ours, theirs, strict=True)}) > 1
    found = verdict(claim(direction="higher"), evidence(ours, theirs))
    assert found.p == 2 * 0.5 ** len(ours) and found.contrasts[0].ci_low is None
    same = verdict(claim(), evidence([0.1 + 0.2, 0.3, 0.3], [0.3, 0.3, 0.1 + 0.2]))
    assert same.contrasts[0].effect == 0.0


def test_differences_that_cancel_but_for_rounding_have_no_direction() -> None:
    hits = [100 * n / 88 for n in (33, 34, 35)]  # per cent, whose differences round
    for over in (2, 4):
        ours, theirs = [hits[1]] * over, [hits[0], hits[2]] * (over // 2)
        assert sum(one - two for one, two in zip(ours, theirs, strict=True)) != 0
        found = verdict(claim(), evidence(ours, theirs))
        assert found.contrasts[0].effect == 0.0
        assert found.reason.startswith("0.000 nats")
        picture = sparkline(found, found.contrasts[0])
        assert picture is not None and picture.effect == picture.zero


def test_a_weaker_claim_of_a_family_needs_no_fewer_seeds() -> None:
    base = [-1.0, 0.4, -0.9, 0.5, 0.3]
    shifts = [0.0, 0.05, 0.1, 0.12, 0.13]
    claims = {f"C{i}": claim() for i in range(len(shifts))}
    found = {
        name: [evidence([one + shift for one in base])]
        for name, shift in zip(claims, shifts, strict=True)
    }
    together = decide(claims_of(claims), found)
    needed = [one.seeds_needed or 10_000 for one in sorted(together, key=lambda one: one.p or 1)]
    strongest, *_ = needed
    alone = verdict(claim(), *found["C0"]).seeds_needed
    assert alone is not None and strongest > alone


def test_equal_numbers_of_what_varies_are_testable() -> None:
    """Rows that answer as many, but not the same items."""
    found = verdict(
        claim(),
        evidence(
            [70.0] * 4,
            [70.0] * 4,
            item_variance=4.0,
            item_df=99,
            sampling_unit="items",
            n_items=100,
        ),
    )
    assert found.verdict == "inconclusive" and found.p == pytest.approx(1.0)


def test_a_constant_metric_is_not_testable() -> None:
    found = verdict(claim(), evidence([100.0] * 5, [100.0] * 5))
    assert (found.verdict, found.p) == ("not testable", None)
    assert found.reason.startswith("both models have 100.000 for every seed")


def test_an_obstacle_outweighs_any_effect() -> None:
    changed = verdict(claim(), evidence(LOWER, overridden="`overrides` changes x (lr: 1)"))
    by_scale = verdict(claim(), evidence(LOWER), not_testable={"C": "twenty steps teach nothing"})
    for found, words in ((changed, "`overrides` changes x"), (by_scale, "twenty steps")):
        assert found.verdict == "not testable"
        assert found.reason.startswith(words)
        assert found.p is None and found.contrasts[0].effect == pytest.approx(-1.0)


def test_what_a_scale_does_not_test_is_one_line_of_the_summary() -> None:
    asked = claims_of(
        {name: claim() for name in "CDE"},
        scale="smoke",
        not_testable=dict.fromkeys("CD", "twenty steps teach nothing"),
    )
    found = decide(asked, {name: [evidence(LOWER)] for name in "CDE"})
    lines = summarize(asked, found)
    assert lines[0] == (
        "3 registered claims at scale smoke: 2 not testable, 1 reproduced at this scale."
    )
    assert "Not testable at this scale, 2 of them: twenty steps teach nothing." in lines
    # What cannot be tested leaves its family.
    assert found[2].p_adjusted == found[2].p


def test_without_a_value_on_both_sides_it_is_not_testable() -> None:
    found = verdict(claim(), evidence([None] * 3))
    assert (found.verdict, found.reason) == ("not testable", "no seed has a value on both sides")


def test_exploratory_seeds_are_named_where_no_other_is_there() -> None:
    found = verdict(claim(), evidence([], [], excluded=[6, 7]))
    assert (found.verdict, found.seeds_needed) == ("not testable", None)
    assert found.reason == "no eligible seeds: 6, 7 are exploratory"


def test_a_missing_value_leaves_it_open() -> None:
    found = verdict(claim(), evidence([*LOWER, None]))
    assert (found.verdict, found.seeds, found.p) == ("inconclusive", 3, None)
    assert "not tested, because seeds without a value are excluded" in found.reason


def test_units_widen_the_interval_and_may_leave_no_number_of_seeds() -> None:
    narrow = verdict(claim(), evidence([-1.0, -1.1, -0.9]))
    wide = verdict(
        claim(),
        evidence(
            [-1.0, -1.1, -0.9], sampling_unit="documents", n_items=9, item_variance=4.0, item_df=8
        ),
    )
    assert narrow.verdict == "reproduced" and "3 seeds" in narrow.reason
    assert wide.verdict == "inconclusive" and "3 seeds and 9 documents" in wide.reason
    assert wide.seeds_needed is None and "would decide" not in wide.reason


def test_times_are_compared_by_their_ratio() -> None:
    asked = claim(compare="ratio", unit="steps")
    learned = [320.0, 340.0, 300.0, 360.0, 320.0, 340.0]
    found = verdict(asked, times(learned, [900.0, 980.0, 860.0, 1020.0, 900.0, 1000.0]))
    (one,) = found.contrasts
    assert found.words == "reproduced at this scale" and one.effect is not None
    # Ratios that all six pairs of intervals allow; every mean of these is as likely.
    assert 300 / 900 < one.effect < 340 / 980
    assert one.ci_low is not None and one.ci_high is not None
    assert 0.3 < one.ci_low < one.effect < one.ci_high < 0.4
    assert found.reason.startswith("× 0.34 steps (95% interval 0.33 to 0.35)")


def test_times_that_were_not_reached_bound_a_ratio_on_one_side() -> None:
    asked = claim(compare="ratio", unit="steps")
    learned = [320.0, 340.0, 300.0, 360.0, 320.0, 340.0]
    (one,) = (found := verdict(asked, times(learned, [None] * 6))).contrasts
    assert found.verdict == "reproduced"
    assert one.ci_low is None and one.ci_high is not None and one.ci_high < 360 / 2000 * 1.1
    assert "(95% interval 0 to 0.16)" in found.reason
    some = verdict(asked, times(learned, [900.0, None, 860.0, None, 900.0, 1000.0]))
    assert some.verdict == "reproduced" and some.seeds == 6


def test_a_ratio_within_its_margin_is_no_difference() -> None:
    asked = claim("equivalence", compare="ratio", unit="steps", margin=1.25)
    near = [320.0, 340.0, 300.0, 360.0, 320.0, 340.0, 340.0, 320.0]
    found = verdict(asked, times(near, [one + 20 * (i % 2) for i, one in enumerate(near)]))
    assert found.words == "no difference (within 0.80 to 1.25) at this scale"


def test_seeds_needed_have_the_power_that_is_asked() -> None:
    differences = [-1.0, 0.2, -0.4, 0.1]
    found = paired_contrast(differences)
    needed = seeds_needed(claim(), evidence(differences), 0.05)
    assert needed is not None
    assert found.with_seeds(needed).power_beyond(0, 0.05) >= 0.8
    assert found.with_seeds(needed - 1).power_beyond(0, 0.05) < 0.8
    # Against the power of a t test by the normal distribution: the sizes agree for many seeds.
    effect, deviation = found.effect, math.sqrt(found.seed_variance)
    normal = ((stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * deviation / effect) ** 2
    assert normal < needed < normal + 4


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=4))
def test_a_family_is_corrected_together(effects: list[float]) -> None:
    claims = {f"C{i}": claim() for i in range(len(effects))}
    found = {
        name: [evidence([effect - 0.1, effect, effect + 0.2])]
        for name, effect in zip(claims, effects, strict=True)
    }
    together = decide(claims_of(claims), found)
    for one in together:
        alone = verdict(claims[one.claim], *found[one.claim])
        assert one.p == alone.p and one.p is not None and one.p_adjusted is not None
        assert one.p_adjusted >= one.p
        assert one.verdict in ("inconclusive", alone.verdict)


def test_claims_that_were_not_built_count_as_undecided() -> None:
    claims = {"C": claim(), "D": claim(artifact="another")}
    found = decide(claims_of(claims), {"C": [evidence([-1.0, -1.2, -0.9])]})
    assert [one.claim for one in found] == ["C"]
    assert found[0].p_adjusted == pytest.approx(2 * (found[0].p or 0))


def test_primary_and_secondary_endpoints_are_families_of_their_own() -> None:
    claims = {"C": claim(), "D": claim(endpoint="secondary"), "E": claim(paper="dex")}
    found = decide(claims_of(claims), {name: [evidence(LOWER)] for name in claims})
    assert all(one.p_adjusted == one.p for one in found)
