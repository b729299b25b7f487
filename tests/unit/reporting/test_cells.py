"""Cells from numbers by seed; paired differences against scipy's paired t test.

Cells hold the chance of seeds and units, as verdicts do.
"""

import numpy as np
import pytest
from answers import claims_on, verdicts_of
from fake_configs import resolved_artifact
from fake_results import FakeResults
from fake_units import units_everywhere, with_units
from scipy import stats
from verdict_simulation import Design

from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.reporting.cells import (
    DIFFERENCE_SUFFIX,
    CellKey,
    PublishedValues,
    censored_cells,
    mean_cell,
    paired_differences,
)
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import Cell, SeedValue
from difftransformer.reporting.table_job import make_table

ROWS = [
    ResolvedRow(run="base", label="Base"),
    ResolvedRow(run="ours", label="Ours", baseline="base"),
]


def cell(row: str, values: dict[int, float | None], paper: float | None = None) -> Cell:
    seeds = [
        SeedValue(seed=seed, value=value, text="", job_ids=[f"{row}-{seed}"])
        for seed, value in values.items()
    ]
    return Cell(row=row, column="loss", text="", paper_value=paper, seeds=seeds)


def test_differences_to_the_baseline_are_paired_by_seed() -> None:
    ours = cell("ours", {0: 3.0, 1: 5.0, 2: 4.0, 7: 99.0, 8: None}, 2.5)
    base = cell("base", {2: 1.0, 1: 4.0, 0: 3.5, 8: 99.0, 9: 99.0}, 3.25)
    (difference,) = paired_differences(ROWS, ["loss"], [base, ours], 2)
    assert (difference.row, difference.column) == ("ours", "loss_difference")
    assert difference.by_seed() == {0: -0.5, 1: 1.0, 2: 3.0}
    assert difference.job_ids() == sorted(
        f"{row}-{seed}" for row in ("ours", "base") for seed in (0, 1, 2)
    )
    interval = stats.ttest_rel([3.0, 5.0, 4.0], [3.5, 4.0, 1.0]).confidence_interval()
    assert difference.value == pytest.approx(3.5 / 3)
    assert (difference.ci_low, difference.ci_high) == pytest.approx((interval.low, interval.high))
    assert (difference.paper_value, difference.paper_text) == (-0.75, "−0.75")
    assert difference.text.startswith("+1.17 ± ")


def test_rounding_errors_of_equal_numbers_are_no_difference() -> None:
    ours, base = (
        cell("ours", {0: 0.1 + 0.2, 1: 38.7, 2: 0.3}),
        cell("base", {0: 0.3, 1: 38.7, 2: 0.3}),
    )
    (difference,) = paired_differences(ROWS, ["loss"], [base, ours], 2)
    assert difference.value == 0 and set(difference.by_seed().values()) == {0.0}


def test_a_published_difference_needs_both_numbers() -> None:
    ours, base = cell("ours", {0: 3.0}, 2.5), cell("base", {0: 1.0})
    (difference,) = paired_differences(ROWS, ["loss"], [base, ours], 2)
    assert (difference.value, difference.paper_value, difference.paper_text) == (2.0, None, None)


def mean_of(seeds: list[SeedValue]) -> Cell:
    return mean_cell(CellKey("ours", "loss"), seeds, 3, PublishedValues(None))


def test_a_cell_covers_the_truth_of_all_seeds_and_items() -> None:
    """Over 100 items that count as much as 5 seeds do; of the seeds alone it is too narrow."""
    design, random = Design(5, 100, 1.0, 1.0, False), np.random.default_rng(0)
    drawn = [with_units(design.draw(random, 2.0)) for _ in range(600)]
    seeds_only = [[seed.model_copy(update={"per_item": None}) for seed in seeds] for seeds in drawn]

    def coverage(samples: list[list[SeedValue]]) -> float:
        cells = [mean_of(seeds) for seeds in samples]
        return float(np.mean([(cell.ci_low or 9) < 2 < (cell.ci_high or 0) for cell in cells]))

    # Three standard errors of 0.95 in so many are 0.027.
    assert 0.92 < coverage(drawn) < 0.98
    assert coverage(seeds_only) < 0.89


def test_a_single_seed_and_equal_values_have_no_interval() -> None:
    single = mean_of(with_units(np.random.default_rng(0).normal(0, 1, (1, 50))))
    assert (
        single.value is not None
        and single.std is None
        and (single.ci_low, single.ci_high) == (None, None)
    )
    same = mean_of([SeedValue(seed=n, value=0.25, text="", job_ids=[]) for n in range(3)])
    assert (same.text, same.std, same.ci_low, same.n) == ("0.250", 0.0, None, 3)
    # Seeds agree and items do not: what was asked is known to vary.
    varying_items = mean_of(with_units(np.tile([0.0, 1.0, 1.0, 0.0], (3, 1))))
    assert (
        varying_items.ci_low is not None
        and varying_items.ci_low < 0.5
        and varying_items.text.startswith("0.500 ± ")
    )


@pytest.mark.parametrize("name", ["table3", "dex_methods", "v2_loss"])
def test_differences_have_the_intervals_of_their_verdicts(name: str, fake: FakeResults) -> None:
    artifact = resolved_artifact(name)
    results = load_results(fake.results, "tiny")
    with_items, without = (
        make_table(artifact, table_results)
        for table_results in (units_everywhere(results), results)
    )
    verdicts = verdicts_of(claims_on(name), units_everywhere(results))
    baseline, compared = (
        {row.run: row.baseline for part in artifact.sections for row in part.rows},
        0,
    )
    for tested in (contrast for verdict in verdicts.values() for contrast in verdict.contrasts):
        row, column = tested.row, tested.metric + DIFFERENCE_SUFFIX
        cell, cell_without = with_items.find(row, column), without.find(row, column)
        if cell is None or baseline[row] != tested.baseline:
            continue
        assert (cell.value, cell.ci_low, cell.ci_high) == (
            tested.effect, tested.ci_low, tested.ci_high
        )  # fmt: skip
        assert cell_without is not None and cell_without.ci_high != cell.ci_high
        compared += 1
    assert compared


def test_median_of_censored_times() -> None:
    def cell(*times: float | None, until: float = 800.0) -> list[Cell]:
        seeds = [
            SeedValue(seed=i, value=t, text="", job_ids=[], censored_at=None if t else until)
            for i, t in enumerate(times)
        ]
        return censored_cells(CellKey("r", "steps"), seeds, "{:.0f}".format, "arrive")

    middle, low, high, censored = cell(300.0, None, 500.0)
    assert (middle.value, middle.text) == (500.0, "500 (300 to 500); 2 of 3 arrive")
    assert (low.value, high.value, censored.value) == (300.0, 500.0, 1.0)
    assert [column_cell.column for column_cell in (middle, censored)] == ["steps", "steps_censored"]
    middle, low, *_ = cell(None, None, 500.0)
    assert (middle.value, middle.text, low.value) == (None, "> 800; 1 of 3 arrive", 500.0)
    # Who ended before the others arrived says nothing about when.
    assert cell(300.0, None, 500.0, until=100.0)[0].value == 400.0
