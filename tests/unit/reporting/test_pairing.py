"""Contributions of items to a value, and the variance of a mean from the choice of items."""

import numpy as np
import pytest
from fake_units import with_units

from difftransformer.errors import DataError
from difftransformer.provenance.result import PerItemScores, RatioTerm
from difftransformer.reporting.document import SeedValue
from difftransformer.reporting.pairing import (
    Pair,
    contrast_with_items,
    item_contributions,
    item_variance_of,
    pair_seeds,
    with_values,
)
from difftransformer.reporting.statistics import NO_ITEM_VARIANCE


def single(seeds: list[SeedValue]) -> list[Pair]:
    return [(seed,) for seed in seeds]


def test_a_ratio_is_linearized_as_in_survey_sampling() -> None:
    random = np.random.default_rng(2)
    weights = random.integers(1, 100, 5000).astype(float)
    values = weights * random.normal(3, 1, 5000)
    (seed,) = with_units(values[None], weights)
    (contributions,) = item_contributions(seed).values()
    assert contributions.sum() == pytest.approx(0, abs=1e-12)
    assert seed.value is not None
    resampled = []
    for _ in range(400):
        some = random.integers(0, 5000, 5000)
        resampled.append(values[some].sum() / weights[some].sum())
    assert np.sqrt((contributions**2).sum()) == pytest.approx(np.std(resampled), rel=0.15)


def test_items_that_do_not_sum_to_the_value_are_refused() -> None:
    (seed,) = with_units(np.ones((1, 4)))
    with pytest.raises(DataError, match=r"j0: .*items.* 1\.0.* 2\.0"):
        item_contributions(seed.model_copy(update={"value": 2.0}))


def test_items_shared_by_two_terms_are_summed_per_item() -> None:
    def accuracy(values: list[float], item_set: str) -> PerItemScores:
        return PerItemScores(item_type="items", terms=[RatioTerm(values=values, item_set=item_set)])

    def parts(first: PerItemScores, second: PerItemScores, value: float) -> list[list[float]]:
        units = PerItemScores.weighted_sum([(100.0, first), (-100.0, second)])
        seed = SeedValue(seed=0, value=value, text="", job_ids=["j0"], per_item=units)
        return [part.tolist() for part in item_contributions(seed).values()]

    first, second = accuracy([1, 0, 1, 0], "a"), accuracy([0, 0, 0, 0], "a")
    assert parts(first, second, 50.0) == [[12.5, -12.5, 12.5, -12.5]]
    assert parts(first, first, 0.0) == [[0, 0, 0, 0]]
    other = first.model_copy(
        update={"terms": [first.terms[0].model_copy(update={"item_set": "b"})]}
    )
    assert len(parts(first, other, 0.0)) == 2


def test_items_that_both_rows_share_are_paired() -> None:
    random = np.random.default_rng(0)
    hard = random.normal(0, 5, 200)  # what makes an item hard is the same for both rows
    ours, theirs = (with_units(hard + random.normal(0, 0.1, (3, 200))) for _ in "xy")
    unpaired, paired = (
        item_variance_of(pairs, "") for pairs in (single(ours), pair_seeds(ours, theirs))
    )
    assert unpaired.variance == pytest.approx(hard.var(ddof=1) / 200, rel=0.01)
    assert paired.variance < 0.01**2 and unpaired.df == paired.df == 199


def test_seeds_without_values_are_excluded_and_seeds_without_items_leave_no_item_variance() -> None:
    seeds = with_units(np.random.default_rng(3).normal(0, 1, (4, 30)))
    lost = seeds[0].model_copy(update={"value": None, "per_item": None})
    pairs = single([lost, *seeds[1:]])
    assert (
        item_variance_of(pairs, "") == item_variance_of(single(seeds[1:]), "") != NO_ITEM_VARIANCE
    )
    assert with_values(pairs) == pairs[1:]
    unknown = seeds[0].model_copy(update={"per_item": None})
    assert item_variance_of(single([unknown, *seeds[1:]]), "") == NO_ITEM_VARIANCE
    assert contrast_with_items(single([unknown, *seeds[1:]]), "").df == 3


def test_a_pretrained_model_is_paired_with_every_seed() -> None:
    ours = with_units(np.random.default_rng(4).normal(0, 1, (3, 30)))
    (once,) = with_units(np.ones((1, 30)))
    elsewhere = once.model_copy(update={"seed": 0, "for_all_seeds": True})
    assert pair_seeds(ours, [elsewhere]) == [(value, elsewhere) for value in ours]
    turned = pair_seeds([elsewhere], ours)
    assert [(first.seed, first.value, second) for first, second in turned] == [
        (value.seed, 1, value) for value in ours
    ]
    other = elsewhere.model_copy(update={"value": 2.0})
    assert pair_seeds([elsewhere], [other]) == [(elsewhere, other)]


def test_seeds_with_different_items_are_refused() -> None:
    seeds = with_units(np.ones((2, 8)))
    with pytest.raises(DataError, match=r"diff, valid: .*items"):
        contrast_with_items(single([seeds[0], with_units(np.ones((2, 9)))[1]]), "diff, valid")
