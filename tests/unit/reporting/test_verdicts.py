import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from judging import claim, evidence, verdict
from scipy import stats

from difftransformer.config.claims import VerdictsSlice
from difftransformer.reporting.claim_tests import seeds_needed
from difftransformer.reporting.site.marks import mark
from difftransformer.reporting.statistics import contrast
from difftransformer.reporting.verdict_job import VerdictsDocument, summarise, to_markdown
from difftransformer.reporting.verdicts import judge

values = st.lists(st.floats(-5, 5, allow_nan=False), min_size=3, max_size=8)
directions = st.sampled_from(["lower", "higher"])
OPPOSITE = {"lower": "higher", "higher": "lower"}
OPPOSED = "opposite at this scale"
MIRROR = {"confirmed": OPPOSED, OPPOSED: "confirmed"}


@given(values, directions)
def test_the_opposite_claim_has_the_mirrored_verdict(numbers: list[float], side: str) -> None:
    one = verdict(claim(direction=side), evidence(numbers))
    two = verdict(claim(direction=OPPOSITE[side]), evidence(numbers))
    assert two.verdict == MIRROR.get(one.verdict, one.verdict)
    mirrored = {"as claimed": "opposite", "opposite": "as claimed", "none": "none"}
    assert two.direction == mirrored[one.direction]


@given(values, directions)
def test_swapping_the_rows_mirrors_the_verdict(numbers: list[float], side: str) -> None:
    zeros = [0.0] * len(numbers)
    one = verdict(claim(direction=side), evidence(numbers, zeros))
    two = verdict(claim(direction=side), evidence(zeros, numbers))
    assert two.verdict == MIRROR.get(one.verdict, one.verdict)


@given(values, directions)
def test_a_verdict_is_that_of_its_interval(numbers: list[float], side: str) -> None:
    found = verdict(claim(direction=side), evidence(numbers))
    assume(found.ci_low is not None and found.ci_high is not None)
    assert found.ci_low is not None and found.ci_high is not None
    decided = found.ci_low > 0 or found.ci_high < 0
    assert (found.verdict in MIRROR) == decided


@given(values)
def test_seeds_alone_are_scipys_paired_t_test(numbers: list[float]) -> None:
    assume(max(numbers) - min(numbers) > 1e-3)
    found = verdict(claim(), evidence(numbers))
    assert found.p == pytest.approx(stats.ttest_1samp(numbers, 0).pvalue, rel=1e-6, abs=1e-12)


@given(values, st.floats(0.001, 3), st.floats(0.001, 3))
def test_a_wider_margin_never_takes_a_confirmation_away(
    numbers: list[float], one: float, two: float
) -> None:
    narrow, wide = sorted((one, two))
    for test in ("equivalence", "noninferiority"):
        first = verdict(claim(test, margin=narrow), evidence(numbers))
        second = verdict(claim(test, margin=wide), evidence(numbers))
        assert first.verdict != "confirmed" or second.verdict == "confirmed"
        assert (
            second.verdict != "opposite at this scale" or first.verdict == "opposite at this scale"
        )


@pytest.mark.parametrize(
    ("differences", "name", "side"),
    [
        ([0.001, -0.001, 0.0005], "confirmed", "as claimed"),
        ([0.5, 0.51, 0.49], "opposite at this scale", "opposite"),
        ([0.0, 0.05, -0.05], "inconclusive", "as claimed"),
    ],
)
def test_equivalence(differences: list[float], name: str, side: str) -> None:
    found = verdict(claim("equivalence"), evidence(differences))
    assert (found.verdict, found.direction) == (name, side)


def test_noninferiority_minds_only_the_worse_side() -> None:
    better, worse = [0.5, 0.6, 0.55], [-0.5, -0.6, -0.55]
    higher = claim("noninferiority", direction="higher", margin=0.05)
    assert verdict(higher, evidence(better)).verdict == "confirmed"
    assert verdict(higher, evidence(worse)).verdict == "opposite at this scale"
    lower = claim("noninferiority", direction="lower", margin=0.05)
    assert verdict(lower, evidence(better)).verdict == "opposite at this scale"
    assert verdict(lower, evidence(worse)).verdict == "confirmed"
    around = [-0.03, -0.05, -0.07]  # all worse, by about the margin
    assert verdict(higher, evidence(around)).verdict == "inconclusive"
    assert verdict(lower, evidence([-one for one in around])).verdict == "inconclusive"


@pytest.mark.parametrize("number", [1, 2])
def test_few_seeds_show_a_direction_and_decide_nothing(number: int) -> None:
    found = verdict(claim(), evidence([-1.0, -1.1][:number]))
    assert (found.verdict, found.direction, found.p) == ("inconclusive", "as claimed", None)
    assert found.seeds_needed == 3
    assert f"with {3 - number} more seed" in found.reason and "power" not in found.reason


def test_differences_without_variance_are_worth_a_sign_test() -> None:
    assert verdict(claim(), evidence([-1.0] * 5)).verdict == "inconclusive"
    found = verdict(claim(), evidence([-1.0] * 6))
    assert (found.verdict, found.p) == ("confirmed", 2 * 0.5**6)
    assert (found.ci_low, found.ci_high) == (None, None)


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
    assert found.p == 2 * 0.5 ** len(ours) and found.ci_low is None
    same = verdict(claim(), evidence([0.1 + 0.2, 0.3, 0.3], [0.3, 0.3, 0.1 + 0.2]))
    assert (same.direction, same.effect) == ("none", 0.0)


def test_differences_that_cancel_but_for_rounding_have_no_direction() -> None:
    hits = [100 * n / 88 for n in (33, 34, 35)]  # per cent, whose differences round
    for over in (2, 4):
        ours, theirs = [hits[1]] * over, [hits[0], hits[2]] * (over // 2)
        assert sum(one - two for one, two in zip(ours, theirs, strict=True)) != 0
        found = verdict(claim(), evidence(ours, theirs))
        assert (found.direction, found.effect) == ("none", 0.0)
        assert found.reason.startswith("difference 0.000")
        picture = mark(found)
        assert picture is not None and picture.effect == picture.zero


def test_a_weaker_claim_of_a_family_needs_no_fewer_seeds() -> None:
    base = [-1.0, 0.4, -0.9, 0.5, 0.3]
    shifts = [0.0, 0.05, 0.1, 0.12, 0.13]
    claims = {f"C{i}": claim() for i in range(len(shifts))}
    found = {
        name: evidence([one + shift for one in base])
        for name, shift in zip(claims, shifts, strict=True)
    }
    together = judge(VerdictsSlice(scale="tiny", claims=claims), found)
    needed = [one.seeds_needed or 10_000 for one in sorted(together, key=lambda one: one.p or 1)]
    strongest, *_ = needed
    alone = verdict(claim(), found["C0"]).seeds_needed
    assert alone is not None and strongest > alone


def test_equal_numbers_of_what_varies_are_testable() -> None:
    """Rows that answer as many, but not the same items."""
    found = verdict(
        claim(),
        evidence(
            [70.0] * 4, [70.0] * 4, unit_variance=4.0, unit_freedom=99, unit="items", units=100
        ),
    )
    assert found.verdict == "inconclusive" and found.p == pytest.approx(1.0)


def test_a_constant_metric_is_not_testable() -> None:
    found = verdict(claim(), evidence([100.0] * 5, [100.0] * 5))
    assert (found.verdict, found.p, found.direction) == ("not testable here", None, "none")
    assert found.reason.startswith("the metric is constant, 100.000 in both rows")


def test_an_obstacle_outweighs_any_effect() -> None:
    asked, clear = claim(), [-1.0, -1.1, -0.9]
    by_table = verdict(asked, evidence(clear, obstacle="baseline at chance (0.260, below 0.300)"))
    by_scale = verdict(asked, evidence(clear), not_testable={"C": "twenty steps teach nothing"})
    for found, words in ((by_table, "baseline at chance"), (by_scale, "twenty steps")):
        assert (found.verdict, found.direction) == ("not testable here", "as claimed")
        assert found.reason.startswith(words)
        assert found.p is None and found.effect == pytest.approx(-1.0)


def test_an_override_is_named_where_the_scale_tests_nothing_either() -> None:
    changed = "`set` changes diff"
    gathered = evidence([-1.0, -1.1, -0.9], obstacle=changed, overridden=changed)
    found = verdict(claim(), gathered, not_testable={"C": "twenty steps teach nothing"})
    assert found.reason.startswith("`set` changes diff; twenty steps teach nothing")
    assert verdict(claim(), gathered).reason.count(changed) == 1


def test_what_a_scale_does_not_test_is_one_line_of_the_summary() -> None:
    asked = VerdictsSlice(
        scale="smoke",
        claims={name: claim() for name in "CDE"},
        not_testable=dict.fromkeys("CD", "twenty steps teach nothing"),
    )
    found = judge(asked, {name: evidence([-1.0, -1.1, -0.9]) for name in "CDE"})
    lines = summarise(asked, found)
    assert "Not testable at this scale, 2 of them: twenty steps teach nothing." in lines
    assert any("1 of 1 testable ones" in line for line in lines)
    silent = asked.model_copy(update={"not_testable": dict.fromkeys("CDE", "no")})
    lines = summarise(silent, judge(silent, {"C": evidence([-1.0, -1.1, -0.9])}))
    assert lines == [
        "1 claim at scale smoke: 1 not testable here.",
        "Not testable at this scale, 1 of them: no.",
    ]


def test_what_was_changed_is_said_once_for_all_claims_that_it_is_of() -> None:
    seen = "The margin was wider until results had been seen."
    asked = VerdictsSlice(
        scale="tiny",
        claims={"C.1": claim(post_hoc=seen), "C.2": claim(post_hoc=seen), "D": claim()},
    )
    found = judge(asked, {name: evidence([-1.0, -1.1, -0.9]) for name in asked.claims})
    text = to_markdown(VerdictsDocument(scale="tiny", seeds=3, summary=["said"], verdicts=found))
    assert text.count(seen) == 1
    assert f"C.1, C.2, changed after results were seen: {seen}" in text


def test_commands_are_shown_as_code() -> None:
    (found,) = judge(
        VerdictsSlice(scale="tiny", claims={"C": claim()}), {"C": evidence([-1.0, 1.1, -0.9])}
    )
    known = {"minutes": 0.6, "command": "snakemake my_table --config scale=tiny seeds=5"}
    timed = found.model_copy(update=known)
    summary = [f"Next: `{timed.command}` to decide my_claim."]
    text = to_markdown(VerdictsDocument(scale="tiny", seeds=3, summary=summary, verdicts=[timed]))
    assert f"Next: `{timed.command}` to decide my\\_claim." in text
    assert f"About a minute here: `{timed.command}` |" in text


def test_no_seed_with_a_value_is_no_data_and_a_missing_one_leaves_it_open() -> None:
    assert verdict(claim(), evidence([None] * 3)).verdict == "no data"


def test_seeds_are_not_asked_for_where_none_would_do() -> None:
    spent = evidence([], [], spent=[6, 7])
    assert verdict(claim(), spent).seeds_needed == 3
    found = verdict(claim(), spent, not_testable={"C": "too small"})
    assert (found.verdict, found.seeds_needed) == ("no data", None) and "spent" not in found.reason
    for over, one in (("seeds", "seed"), ("processes", "process")):
        asked = claim(over=over)
        assert verdict(asked, evidence([None] * 3)).reason == f"no {one} has a value on both sides"
        assert verdict(asked, evidence([0.5])).reason.startswith(f"difference +0.500, of 1 {one}")
    found = verdict(claim(), evidence([-1.0, -1.1, -0.9, None]))
    assert found.verdict == "inconclusive" and found.seeds == 3
    assert "1 of 4 seeds without a value" in found.reason


def test_units_widen_the_interval_and_may_leave_no_number_of_seeds() -> None:
    narrow = verdict(claim(), evidence([-1.0, -1.1, -0.9]))
    wide = verdict(
        claim(),
        evidence([-1.0, -1.1, -0.9], unit="documents", units=9, unit_variance=4.0, unit_freedom=8),
    )
    assert narrow.verdict == "confirmed" and "3 seeds" in narrow.reason
    assert wide.verdict == "inconclusive" and "3 seeds and 9 documents" in wide.reason
    assert wide.seeds_needed is None and "no number of seeds" in wide.reason


def test_times_that_were_not_reached_count_as_the_budget() -> None:
    asked = claim("time_to_event")
    ours, theirs = [240.0, 220.0, 260.0, 200.0, 230.0], [1060.0, None, 1080.0, None, 900.0]
    found = verdict(asked, evidence(ours, theirs, beyond=1200.0))
    assert found.effect == pytest.approx((sum(ours) - 1060 - 1080 - 900 - 2400) / 5)
    assert found.verdict == "confirmed" and found.p == pytest.approx(2 / 252)
    assert "restricted mean difference" in found.reason


def test_seeds_needed_have_the_power_that_is_asked() -> None:
    differences = [-1.0, 0.2, -0.4, 0.1]
    found = contrast(differences)
    pairs = [(one, 0.0) for one in differences]
    needed = seeds_needed(claim(), pairs, evidence(differences), 0.05)
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
        name: evidence([effect - 0.1, effect, effect + 0.2])
        for name, effect in zip(claims, effects, strict=True)
    }
    together = judge(VerdictsSlice(scale="tiny", claims=claims), found)
    for one in together:
        alone = verdict(claims[one.claim], found[one.claim])
        assert one.p == alone.p and one.p is not None and one.p_adjusted is not None
        assert one.p_adjusted >= one.p
        assert one.verdict in ("inconclusive", alone.verdict)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"date": "2026-11-22", "commit": "0123abc"}, "2026-11-22 0123abc"),
        ({"date": "2026-11-22"}, "2026-11-22, not in a commit yet"),
    ],
)
def test_a_verdict_says_since_when_its_claim_is_declared(
    declared: dict[str, str], words: str
) -> None:
    assert verdict(claim(declared=declared), evidence([-1.0, -1.2, -0.9])).declared == words


def test_claims_that_were_not_built_count_as_undecided() -> None:
    claims = {"C": claim(primary=True), "D": claim(primary=True, artifact="another")}
    found = judge(VerdictsSlice(scale="tiny", claims=claims), {"C": evidence([-1.0, -1.2, -0.9])})
    assert [one.claim for one in found] == ["C"]
    assert found[0].p_adjusted == pytest.approx(2 * (found[0].p or 0))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"test": "equivalence", "margin": 0.01, "margin_reason": None},
            "a margin needs its reason",
        ),
        ({"test": "difference", "margin": 0.01, "margin_reason": "r"}, "no use for a margin"),
        ({"post_hoc": ""}, "post_hoc"),
        ({"requires": [{"row": "x", "metric": "m", "reason": "r"}]}, "at_least, at_most or both"),
        ({"requires": [{"row": "x", "metric": "m", "at_least": 1, "reason": ""}]}, "reason"),
        ({"against": 1.0, "against_metric": "others"}, "against_metric: against is the number 1"),
        ({"against": 1.0, "test": "time_to_event"}, "against must be a run"),
        ({"declared": {"date": "today", "commit": "0123abc"}}, "date"),
    ],
)
def test_what_a_claim_may_not_be(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        claim(changes.pop("test", "difference"), **changes)
