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
    original = verdict(claim(direction=side), evidence(numbers)).verdict
    mirrored = verdict(claim(direction=OPPOSITE[side]), evidence(numbers)).verdict
    assert mirrored == MIRROR.get(original, original)


@given(values, directions)
def test_swapping_the_rows_mirrors_the_verdict(numbers: list[float], side: str) -> None:
    zeros = [0.0] * len(numbers)
    original = verdict(claim(direction=side), evidence(numbers, zeros)).verdict
    mirrored = verdict(claim(direction=side), evidence(zeros, numbers)).verdict
    assert mirrored == MIRROR.get(original, original)


@given(values, directions)
def test_a_verdict_follows_from_its_interval(numbers: list[float], side: str) -> None:
    tested = verdict(claim(direction=side), evidence(numbers))
    low, high = tested.contrasts[0].ci_low, tested.contrasts[0].ci_high
    assume(low is not None and high is not None)
    assert low is not None and high is not None
    assert (tested.verdict in MIRROR) == (low > 0 or high < 0)


@given(values)
def test_seeds_without_items_give_scipys_paired_t_test(numbers: list[float]) -> None:
    assume(max(numbers) - min(numbers) > 1e-3)
    tested = verdict(claim(), evidence(numbers))
    assert tested.p == pytest.approx(stats.ttest_1samp(numbers, 0).pvalue, rel=1e-6, abs=1e-12)


@given(values, st.floats(0.001, 3), st.floats(0.001, 3))
def test_a_wider_margin_never_makes_a_difference(numbers: list[float], a: float, b: float) -> None:
    narrow, wide = sorted((a, b))
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
    tested = verdict(claim("equivalence"), evidence(differences))
    assert tested.words == (words if words == "inconclusive" else f"{words} at this scale")


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
    tested_claim = claim(contrasts=BOTH, mixed="turns")
    tested = verdict(tested_claim, evidence(signed), evidence(absolute))
    assert tested.words == words
    assert tested.p == max(contrast.p for contrast in tested.contrasts if contrast.p is not None)


def test_two_contrasts_that_disagree_are_inconclusive() -> None:
    equal = evidence([0.001, 0.0, -0.001])
    tested = verdict(claim("equivalence", contrasts=BOTH), equal, evidence(LOWER))
    assert (tested.verdict, tested.p) == ("inconclusive", 1.0)
    assert "contrasts support different verdicts" in tested.reason


def test_a_verdict_on_models_of_the_papers_size_is_not_of_this_scale_only() -> None:
    large = {"parameters": [2_000_000_000] * 2, "tokens": [20_000_000_000] * 2}
    assert verdict(claim(), evidence(LOWER, **large)).words == "reproduced"
    for name in large:
        small = large | {name: [1_000, 2_000_000_000]}
        assert verdict(claim(), evidence(LOWER, **small)).words == "reproduced at this scale"


def test_an_estimate_has_an_interval_and_no_test() -> None:
    tested = verdict(claim(None), evidence(LOWER))
    assert (tested.verdict, tested.p, tested.p_adjusted) == ("estimate", None, None)
    assert tested.contrasts[0].ci_low is not None and "p =" not in tested.reason


def test_noninferiority_tests_only_the_worse_side() -> None:
    better, worse = [0.5, 0.6, 0.55], [-0.5, -0.6, -0.55]
    higher = claim("noninferiority", direction="higher", margin=0.05)
    assert verdict(higher, evidence(better)).verdict == "reproduced"
    assert verdict(higher, evidence(worse)).verdict == "opposite"
    lower = claim("noninferiority", direction="lower", margin=0.05)
    assert verdict(lower, evidence(better)).verdict == "opposite"
    assert verdict(lower, evidence(worse)).verdict == "reproduced"
    around = [-0.03, -0.05, -0.07]  # all worse, by about the margin
    assert verdict(higher, evidence(around)).verdict == "inconclusive"
    assert verdict(lower, evidence([-item for item in around])).verdict == "inconclusive"


@pytest.mark.parametrize("number", [1, 2])
def test_few_seeds_show_a_direction_and_decide_nothing(number: int) -> None:
    tested = verdict(claim(), evidence([-1.0, -1.1][:number]))
    assert (tested.verdict, tested.p) == ("inconclusive", None)
    assert tested.seeds_needed == 3
    assert tested.reason.startswith("−1.") and "p =" not in tested.reason


def test_differences_without_variance_get_a_sign_test() -> None:
    assert verdict(claim(), evidence([-1.0] * 5)).verdict == "inconclusive"
    tested = verdict(claim(), evidence([-1.0] * 6))
    assert (tested.verdict, tested.p) == ("reproduced", 2 * 0.5**6)
    assert (tested.contrasts[0].ci_low, tested.contrasts[0].ci_high) == (None, None)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([0.9, 0.8, 0.7], [0.5, 0.4, 0.3]),
        ([100 * n / 30 for n in (20, 21, 22)], [100 * n / 30 for n in (19, 20, 21)]),
        ([0.1 * n for n in range(1, 7)], [0.1 * n + 0.3 for n in range(1, 7)]),
    ],
)
def test_differences_within_rounding_error_are_equal(
    ours: list[float], theirs: list[float]
) -> None:
    assert len({a - b for a, b in zip(ours, theirs, strict=True)}) > 1
    tested = verdict(claim(direction="higher"), evidence(ours, theirs))
    assert tested.p == 2 * 0.5 ** len(ours) and tested.contrasts[0].ci_low is None
    same = verdict(claim(), evidence([0.1 + 0.2, 0.3, 0.3], [0.3, 0.3, 0.1 + 0.2]))
    assert same.contrasts[0].effect == 0.0


def test_differences_that_cancel_but_for_rounding_have_no_direction() -> None:
    hits = [100 * n / 88 for n in (33, 34, 35)]  # per cent, whose differences round
    for over in (2, 4):
        ours, theirs = [hits[1]] * over, [hits[0], hits[2]] * (over // 2)
        assert sum(a - b for a, b in zip(ours, theirs, strict=True)) != 0
        tested = verdict(claim(), evidence(ours, theirs))
        assert tested.contrasts[0].effect == 0.0
        assert tested.reason.startswith("0.000 nats")
        picture = sparkline(tested, tested.contrasts[0])
        assert picture is not None and picture.effect == picture.zero


def test_a_weaker_claim_of_a_family_needs_no_fewer_seeds() -> None:
    base = [-1.0, 0.4, -0.9, 0.5, 0.3]
    shifts = [0.0, 0.05, 0.1, 0.12, 0.13]
    claims = {f"C{i}": claim() for i in range(len(shifts))}
    tested = {
        name: [evidence([item + shift for item in base])]
        for name, shift in zip(claims, shifts, strict=True)
    }
    together = decide(claims_of(claims), tested)
    needed = [
        item.seeds_needed or 10_000 for item in sorted(together, key=lambda item: item.p or 1)
    ]
    strongest, *_ = needed
    alone = verdict(claim(), *tested["C0"]).seeds_needed
    assert alone is not None and strongest > alone


def test_equal_values_whose_items_vary_are_testable() -> None:
    """Rows that answer as many, but not the same items."""
    tested = verdict(
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
    assert tested.verdict == "inconclusive" and tested.p == pytest.approx(1.0)


def test_a_constant_metric_is_not_testable() -> None:
    tested = verdict(claim(), evidence([100.0] * 5, [100.0] * 5))
    assert (tested.verdict, tested.p) == ("not testable", None)
    assert tested.reason.startswith("both models have 100.000 for every seed")


def test_a_claim_that_cannot_be_tested_gets_no_verdict_whatever_its_effect() -> None:
    changed = verdict(claim(), evidence(LOWER, overridden="`overrides` changes x (lr: 1)"))
    by_scale = verdict(claim(), evidence(LOWER), not_testable={"C": "twenty steps teach nothing"})
    for tested, words in ((changed, "`overrides` changes x"), (by_scale, "twenty steps")):
        assert tested.verdict == "not testable"
        assert tested.reason.startswith(words)
        assert tested.p is None and tested.contrasts[0].effect == pytest.approx(-1.0)


def test_claims_untested_at_a_scale_are_one_line_of_the_summary() -> None:
    tested_claim = claims_of(
        {name: claim() for name in "CDE"},
        scale="smoke",
        not_testable=dict.fromkeys("CD", "twenty steps teach nothing"),
    )
    tested = decide(tested_claim, {name: [evidence(LOWER)] for name in "CDE"})
    lines = summarize(tested_claim, tested)
    assert lines[0] == (
        "3 registered claims at scale smoke: 2 not testable, 1 reproduced at this scale."
    )
    assert "Not testable at this scale, 2 of them: twenty steps teach nothing." in lines
    # What cannot be tested leaves its family.
    assert tested[2].p_adjusted == tested[2].p


def test_a_claim_without_values_of_both_models_is_not_testable() -> None:
    tested = verdict(claim(), evidence([None] * 3))
    assert (tested.verdict, tested.reason) == ("not testable", "no seed has a value on both sides")


def test_exploratory_seeds_are_named_when_no_seed_is_eligible() -> None:
    tested = verdict(claim(), evidence([], [], excluded=[6, 7]))
    assert (tested.verdict, tested.seeds_needed) == ("not testable", None)
    assert tested.reason == "no eligible seeds: 6, 7 are exploratory"


def test_a_missing_value_makes_a_verdict_inconclusive() -> None:
    outcome = verdict(claim(), evidence([*LOWER, None]))
    assert (outcome.verdict, outcome.seeds, outcome.p) == ("inconclusive", 3, None)
    assert "not tested, because seeds without a value are excluded" in outcome.reason


def test_item_variance_widens_the_interval_and_may_leave_no_sufficient_number_of_seeds() -> None:
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
    tested_claim = claim(compare="ratio", unit="steps")
    learned = [320.0, 340.0, 300.0, 360.0, 320.0, 340.0]
    tested = verdict(tested_claim, times(learned, [900.0, 980.0, 860.0, 1020.0, 900.0, 1000.0]))
    (item,) = tested.contrasts
    assert tested.words == "reproduced at this scale" and item.effect is not None
    # Ratios that all six pairs of intervals allow; every mean of these is as likely.
    assert 300 / 900 < item.effect < 340 / 980
    assert item.ci_low is not None and item.ci_high is not None
    assert 0.3 < item.ci_low < item.effect < item.ci_high < 0.4
    assert tested.reason.startswith("× 0.34 steps (95% interval 0.33 to 0.35)")


def test_censored_times_bound_a_ratio_on_one_side() -> None:
    tested_claim = claim(compare="ratio", unit="steps")
    learned = [320.0, 340.0, 300.0, 360.0, 320.0, 340.0]
    (item,) = (tested := verdict(tested_claim, times(learned, [None] * 6))).contrasts
    assert tested.verdict == "reproduced"
    assert item.ci_low is None and item.ci_high is not None and item.ci_high < 360 / 2000 * 1.1
    assert "(95% interval 0 to 0.16)" in tested.reason
    some = verdict(tested_claim, times(learned, [900.0, None, 860.0, None, 900.0, 1000.0]))
    assert some.verdict == "reproduced" and some.seeds == 6


def test_a_ratio_within_its_margin_is_no_difference() -> None:
    tested_claim = claim("equivalence", compare="ratio", unit="steps", margin=1.25)
    near = [320.0, 340.0, 300.0, 360.0, 320.0, 340.0, 340.0, 320.0]
    tested = verdict(
        tested_claim, times(near, [item + 20 * (i % 2) for i, item in enumerate(near)])
    )
    assert tested.words == "no difference (within 0.80 to 1.25) at this scale"


def test_seeds_needed_reach_the_target_power() -> None:
    differences = [-1.0, 0.2, -0.4, 0.1]
    tested = paired_contrast(differences)
    needed = seeds_needed(claim(), evidence(differences), 0.05)
    assert needed is not None
    assert tested.with_seeds(needed).power_beyond(0, 0.05) >= 0.8
    assert tested.with_seeds(needed - 1).power_beyond(0, 0.05) < 0.8
    # Against the power of a t test by the normal distribution: the sizes agree for many seeds.
    effect, deviation = tested.effect, math.sqrt(tested.seed_variance)
    normal = ((stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * deviation / effect) ** 2
    assert normal < needed < normal + 4


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=4))
def test_a_family_is_corrected_together(effects: list[float]) -> None:
    claims = {f"C{i}": claim() for i in range(len(effects))}
    tested = {
        name: [evidence([effect - 0.1, effect, effect + 0.2])]
        for name, effect in zip(claims, effects, strict=True)
    }
    for joint in decide(claims_of(claims), tested):
        alone = verdict(claims[joint.claim], *tested[joint.claim])
        assert joint.p == alone.p and joint.p is not None and joint.p_adjusted is not None
        assert joint.p_adjusted >= joint.p
        assert joint.verdict in ("inconclusive", alone.verdict)


def test_claims_that_were_not_built_count_as_undecided() -> None:
    claims = {"C": claim(), "D": claim(artifact="another")}
    tested = decide(claims_of(claims), {"C": [evidence([-1.0, -1.2, -0.9])]})
    assert [item.claim for item in tested] == ["C"]
    assert tested[0].p_adjusted == pytest.approx(2 * (tested[0].p or 0))


def test_primary_and_secondary_endpoints_are_families_of_their_own() -> None:
    claims = {"C": claim(), "D": claim(endpoint="secondary"), "E": claim(paper="dex")}
    tested = decide(claims_of(claims), {name: [evidence(LOWER)] for name in claims})
    assert all(item.p_adjusted == item.p for item in tested)
