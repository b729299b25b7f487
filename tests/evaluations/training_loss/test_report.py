"""Losses during training: points of the curves, and differences to the baseline of each section."""

from statistics import fmean

import pytest
from fake_configs import SCALE, resolved_artifact
from fake_results import FakeResults

from difftransformer.reporting.collect import load_results
from difftransformer.reporting.table_job import make_table


def test_columns_are_the_validations_nearest_to_fractions_of_the_budget(fake: FakeResults) -> None:
    results = load_results(fake.results, SCALE)
    made = make_table(resolved_artifact("v2_loss"), results)
    first, second, _ = made.sections
    curves = [results.histories.series("diff_v2", seed, "validation_loss") for seed in (0, 1, 2)]
    for percent, index in ((25, 1), (50, 3), (75, 5), (100, 7)):  # validated 8 times
        cell = made.find("diff_v2", f"loss_{percent}")
        assert cell is not None
        assert cell.value == pytest.approx(fmean(curve.values[index] for curve in curves))
    to_transformer = first.cell("diff_v2", "loss_100_difference")
    to_v1 = second.cell("diff_v2", "loss_100_difference_to_diff_gqa")
    ours, v1 = (made.find(run, "loss_100") for run in ("diff_v2", "diff_gqa"))
    assert to_transformer and to_v1 and ours and v1 and ours.value and v1.value
    assert to_v1.value == pytest.approx(ours.value - v1.value)
    assert to_transformer.value != pytest.approx(to_v1.value)
