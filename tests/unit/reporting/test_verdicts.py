from collections.abc import Sequence
from typing import Any

import pytest
from fake_results import FakeResults
from fake_slices import artifact_slice
from hypothesis import given
from hypothesis import strategies as st

from difftransformer.config.artifact_slices import ClaimSlice
from difftransformer.config.artifacts import ClaimConfig
from difftransformer.errors import ConfigError
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import Cell, SeedValue
from difftransformer.reporting.table_job import make_table
from difftransformer.reporting.verdicts import decide, decide_against_number

values = st.lists(st.floats(-5, 5, allow_nan=False), min_size=3, max_size=8)
directions = st.sampled_from(["lower", "higher"])
OPPOSITE = {"lower": "higher", "higher": "lower"}
MIRROR = {"confirmed": "contradicted", "contradicted": "confirmed", "inconclusive": "inconclusive"}


def claim(test: str = "paired_t", **changes: Any) -> ClaimConfig:
    if test in ("equivalence", "noninferiority"):
        changes.setdefault("margin", 0.01)
    known = {"text": "t", "source": "s", "metric": "m", "row": "x", "against": "y"}
    return ClaimConfig(**known | changes, test=test)


def by_seed(numbers: list[float]) -> dict[int, float]:
    return dict(enumerate(numbers))


def zeros(numbers: list[float]) -> dict[int, float]:
    return dict.fromkeys(range(len(numbers)), 0.0)


@given(values, directions, st.sampled_from(["paired_t", "sign"]))
def test_the_opposite_claim_has_the_mirrored_verdict(
    numbers: list[float], direction: str, test: str
) -> None:
    one = decide(claim(test, direction=direction), by_seed(numbers), zeros(numbers))
    two = decide(claim(test, direction=OPPOSITE[direction]), by_seed(numbers), zeros(numbers))
    assert two.verdict == MIRROR[one.verdict]


@given(values, directions)
def test_swapping_the_rows_mirrors_the_verdict(numbers: list[float], direction: str) -> None:
    one = decide(claim(direction=direction), by_seed(numbers), zeros(numbers))
    two = decide(claim(direction=direction), zeros(numbers), by_seed(numbers))
    assert two.verdict == MIRROR[one.verdict]


@given(values, directions)
def test_a_paired_verdict_is_decided_by_its_interval(numbers: list[float], direction: str) -> None:
    found = decide(claim(direction=direction), by_seed(numbers), zeros(numbers))
    assert found.low is not None and found.high is not None
    decided = found.low > 0 or found.high < 0
    assert (found.verdict != "inconclusive") == decided


@given(values, st.floats(0.001, 3), st.floats(0.001, 3))
def test_a_wider_margin_never_takes_a_confirmation_away(
    numbers: list[float], one: float, two: float
) -> None:
    narrow, wide = sorted((one, two))
    for test in ("equivalence", "noninferiority"):
        first = decide(claim(test, margin=narrow), by_seed(numbers), zeros(numbers))
        second = decide(claim(test, margin=wide), by_seed(numbers), zeros(numbers))
        assert first.verdict != "confirmed" or second.verdict == "confirmed"
        assert second.verdict != "contradicted" or first.verdict == "contradicted"


@given(
    values,
    directions,
    st.sampled_from(["paired_t", "equivalence", "noninferiority"]),
    st.sampled_from([0.01, 0.05, 0.2]),
)
def test_intervals_and_p_values_decide_alike_at_any_alpha(
    numbers: list[float], direction: str, test: str, alpha: float
) -> None:
    margin = {} if test == "paired_t" else {"margin": 1.0}
    asked = claim(test, direction=direction, alpha=alpha, **margin)
    found = decide(asked, by_seed(numbers), zeros(numbers))
    decided = {"confirmed", "contradicted"} if test == "paired_t" else {"confirmed"}
    assert found.p_value is not None
    assert (found.verdict in decided) == (found.p_value < alpha)


@given(st.lists(st.floats(-5, 5), max_size=2), st.sampled_from(["paired_t", "sign", "equivalence"]))
def test_fewer_than_three_pairs_decide_nothing(numbers: list[float], test: str) -> None:
    found = decide(claim(test), by_seed(numbers), zeros(numbers))
    assert found.verdict == "inconclusive"
    assert "a verdict needs 3 or more" in found.words


def test_only_seeds_that_both_have_are_paired() -> None:
    found = decide(claim(), {0: 1.0, 1: 1.1, 2: 1.2, 7: 99.0}, {0: 2.0, 1: 2.1, 2: 2.2, 8: -99.0})
    assert found.verdict == "confirmed"
    assert found.estimate == pytest.approx(-1)
    assert found.words.endswith("; left out: 2 seeds with a value on one side alone")


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.001, -0.001, 0.0005], "confirmed"),
        ([0.5, 0.51, 0.49], "contradicted"),
        ([0.0, 0.05, -0.05], "inconclusive"),
        ([0.0, 0.0, 0.0], "confirmed"),
    ],
)
def test_equivalence(differences: list[float], verdict: str) -> None:
    found = decide(claim("equivalence"), by_seed(differences), zeros(differences))
    assert found.verdict == verdict
    assert found.p_value is not None
    assert (found.p_value < 0.05) == (verdict == "confirmed")


def test_noninferiority_minds_only_the_worse_side() -> None:
    better, worse = [0.5, 0.6, 0.55], [-0.5, -0.6, -0.55]
    higher = claim("noninferiority", direction="higher", margin=0.05)
    assert decide(higher, by_seed(better), zeros(better)).verdict == "confirmed"
    assert decide(higher, by_seed(worse), zeros(worse)).verdict == "contradicted"
    lower = claim("noninferiority", direction="lower", margin=0.05)
    assert decide(lower, by_seed(better), zeros(better)).verdict == "contradicted"
    assert decide(lower, by_seed(worse), zeros(worse)).verdict == "confirmed"
    around = [-0.03, -0.05, -0.07]  # all worse, by about the margin
    assert decide(higher, by_seed(around), zeros(around)).verdict == "inconclusive"
    above = [-one for one in around]
    assert decide(lower, by_seed(above), zeros(above)).verdict == "inconclusive"


def test_a_sign_test_says_how_many_seeds_it_takes() -> None:
    three = decide(claim("sign", direction="higher"), by_seed([1.0] * 3), zeros([1.0] * 3))
    assert three.verdict == "inconclusive" and "it takes 6 seeds" in three.words
    six = decide(claim("sign", direction="higher"), by_seed([1.0] * 6), zeros([1.0] * 6))
    assert six.verdict == "confirmed"


def test_verdicts_of_a_table_name_scale_numbers_and_jobs(fake: FakeResults) -> None:
    artifact = artifact_slice("table6")
    table = make_table(artifact, load_results(fake.results, artifact.scale))
    verdicts = {verdict.claim: verdict for verdict in table.verdicts}
    assert list(verdicts) == list(artifact.claims)
    first = verdicts["T6.1"]
    assert first.verdict == "contradicted"  # the fake DIFF is worse, and the report must say so
    assert first.reason.startswith("At scale tiny: difference +0.0")
    assert first.n == 3 and len(first.job_ids) == 6
    assert verdicts["T6.5"].verdict == "confirmed"


def test_a_claim_may_be_about_two_columns(fake: FakeResults) -> None:
    asked = claim(metric="ar_hit", row="diff", against="transformer", against_metric="others")
    claims = {"C": ClaimSlice(artifact="table6", **asked.model_dump())}
    artifact = artifact_slice("table6").model_copy(update={"claims": claims})
    table = make_table(artifact, load_results(fake.results, "tiny"))
    ours, theirs = table.find("diff", "ar_hit"), table.find("transformer", "others")
    assert ours is not None and ours.value is not None
    assert theirs is not None and theirs.value is not None
    assert table.verdicts[0].estimate == pytest.approx(ours.value - theirs.value)
    with pytest.raises(ValueError, match="against_metric: against is the number 1"):
        claim(against=1.0, against_metric="others")


def test_a_claim_about_an_unknown_column_is_an_error(fake: FakeResults) -> None:
    artifact = artifact_slice("table6")
    claims = {"X": artifact.claims["T6.1"].model_copy(update={"metric": "perplexity"})}
    with pytest.raises(ConfigError, match=r"claims\.X\.metric.*no column 'perplexity'.*valid"):
        make_table(
            artifact.model_copy(update={"claims": claims}), load_results(fake.results, "tiny")
        )


@given(values, directions)
def test_a_number_is_a_row_that_is_the_same_for_every_seed(
    numbers: list[float], direction: str
) -> None:
    cell = Cell(row="x", column="m", text="", seeds=seeds_of(list(numbers)))
    found = decide_against_number(claim(direction=direction, against=1.0), cell, 1.0)
    ones = dict.fromkeys(range(len(numbers)), 1.0)
    paired = decide(claim(direction=direction), by_seed(numbers), ones)
    assert found[:5] == paired[:5]
    assert "difference to 1 " in found.words and "paired" not in found.words


def test_a_seed_without_a_value_leaves_a_claim_about_a_number_open() -> None:
    cell = Cell(row="x", column="m", text="", seeds=seeds_of([0.5, 0.5, 0.51, None]))
    found = decide_against_number(claim(against=1.0), cell, 1.0)
    assert (found.verdict, found.estimate) == ("inconclusive", None)
    assert found.words == "seed 3 has no value: nowhere"


def seeds_of(numbers: Sequence[float | None]) -> list[SeedValue]:
    return [
        SeedValue(seed=seed, value=value, text="nowhere" if value is None else "", job_ids=[])
        for seed, value in enumerate(numbers)
    ]
