"""Cells from numbers by seed; paired differences against scipy's paired t test."""

import pytest
from scipy import stats

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.reporting.cells import Place, censored_cells, paired_differences
from difftransformer.reporting.document import Cell, SeedValue

ROWS = [RowSlice(run="base", label="Base"), RowSlice(run="ours", label="Ours", against="base")]


def cell(row: str, values: dict[int, float | None], paper: float | None = None) -> Cell:
    seeds = [
        SeedValue(seed=seed, value=value, text="", job_ids=[f"{row}-{seed}"])
        for seed, value in values.items()
    ]
    return Cell(row=row, column="loss", text="", paper_value=paper, seeds=seeds)


def test_a_row_has_the_other_one_subtracted_seed_by_seed() -> None:
    ours = cell("ours", {0: 3.0, 1: 5.0, 2: 4.0, 7: 99.0, 8: None}, 2.5)
    base = cell("base", {2: 1.0, 1: 4.0, 0: 3.5, 8: 99.0, 9: 99.0}, 3.25)
    (found,) = paired_differences(ROWS, ["loss"], [base, ours], 2)
    assert (found.row, found.column) == ("ours", "loss_difference")
    assert found.by_seed() == {0: -0.5, 1: 1.0, 2: 3.0}
    assert found.job_ids() == sorted(
        f"{row}-{seed}" for row in ("ours", "base") for seed in (0, 1, 2)
    )
    interval = stats.ttest_rel([3.0, 5.0, 4.0], [3.5, 4.0, 1.0]).confidence_interval()
    assert found.value == pytest.approx(3.5 / 3)
    assert (found.ci_low, found.ci_high) == pytest.approx((interval.low, interval.high))
    assert (found.paper_value, found.paper_text) == (-0.75, "−0.75")
    assert found.text.startswith("+1.17 ± ")


def test_a_published_difference_needs_both_numbers() -> None:
    ours, base = cell("ours", {0: 3.0}, 2.5), cell("base", {0: 1.0})
    (found,) = paired_differences(ROWS, ["loss"], [base, ours], 2)
    assert (found.value, found.paper_value, found.paper_text) == (2.0, None, None)


def test_median_of_censored_times() -> None:
    def found(*times: float | None, until: float = 800.0) -> list[Cell]:
        seeds = [
            SeedValue(seed=i, value=t, text="", job_ids=[], beyond=None if t else until)
            for i, t in enumerate(times)
        ]
        return censored_cells(Place("r", "steps"), seeds, "{:.0f}".format, "arrive")

    middle, low, high, censored = found(300.0, None, 500.0)
    assert (middle.value, middle.text) == (500.0, "500 (300 to 500); 2 of 3 arrive")
    assert (low.value, high.value, censored.value) == (300.0, 500.0, 1.0)
    assert [one.column for one in (middle, censored)] == ["steps", "steps_censored"]
    middle, low, *_ = found(None, None, 500.0)
    assert (middle.value, middle.text, low.value) == (None, "> 800; 1 of 3 arrive", 500.0)
    # Who ended before the others arrived says nothing about when.
    assert found(300.0, None, 500.0, until=100.0)[0].value == 400.0
