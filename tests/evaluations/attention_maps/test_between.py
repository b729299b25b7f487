"""Correlation of the maps of two models against scipy, and figure 14 of Dex."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_results import FakeResults
from fake_slices import SCALE, artifact_slice
from pictures import picture_of
from safetensors.numpy import load_file
from scipy.stats import pearsonr, spearmanr

from difftransformer.evaluations.attention_maps import between
from difftransformer.evaluations.attention_maps.between import correlations
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.table_job import build_table, make_table

QUERIES = np.array([6, 11])


@pytest.mark.parametrize(("measure", "theirs"), [("rank", spearmanr), ("pearson", pearsonr)])
def test_correlations_are_those_of_scipy(measure: str, theirs: object) -> None:
    draw = np.random.default_rng(0)
    one, other = (draw.random((3, 2, 2, 12)).round(1) for _ in range(2))  # with ties
    found = correlations(one, other, QUERIES, measure)
    for layer in range(2):
        slow = [
            theirs(one[w, layer, q, : stop + 1], other[w, layer, q, : stop + 1]).statistic  # type: ignore[operator]
            for w in range(3)
            for q, stop in enumerate(QUERIES)
        ]
        assert found[layer] == pytest.approx(np.mean(slow))


def test_rows_without_spread_are_left_out() -> None:
    draw = np.random.default_rng(1)
    one, other = (draw.random((2, 1, 2, 12)) for _ in range(2))
    flat = one.copy()
    flat[0] = 0.25
    expected = correlations(one[1:], other[1:], QUERIES, "pearson")
    np.testing.assert_allclose(correlations(flat, other, QUERIES, "pearson"), expected)


def test_a_layer_without_attention_has_no_correlation() -> None:
    draw = np.random.default_rng(2)
    one, other = (draw.random((3, 3, 2, 12)) for _ in range(2))
    one[:, 1] = 0.0
    first, none, last = correlations(one, other, QUERIES, "rank")
    assert np.isnan(none) and not np.isnan([first, last]).any()


def test_a_model_with_such_a_layer_has_the_mean_of_the_others(
    fake: FakeResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_first(*given: Any) -> Any:
        found = correlations(*given)
        found[0] = np.nan
        return found

    monkeypatch.setattr(between, "correlations", without_first)
    artifact, results = artifact_slice("dex_figure14"), load_results(fake.results, SCALE)
    for part in make_table(artifact, results).sections:
        for cell in part.cells:
            assert (cell.value is None) == cell.column.endswith("_l0"), cell.column
    lines = picture_of(artifact, results, fake).axes[0].lines
    assert {len(line.get_xdata()) for line in lines} <= {0, 1}


def test_the_table_compares_models_seed_by_seed(fake: FakeResults, tmp_path: Path) -> None:
    build_table(artifact_slice("dex_figure14"), fake.results, tmp_path / "t")
    with (tmp_path / "t.csv").open(encoding="utf-8") as file:
        cells = {(line["row"], line["column"]): line for line in csv.DictReader(file)}
    folder = fake.root / "evaluations/attention_maps"
    found = []
    for seed in (0, 1, 2):
        one, other = (
            load_file(folder / run / str(seed) / "maps.safetensors")
            for run in ("diff", "transformer")
        )
        found.append(correlations(one["absolute"], other["signed"], one["queries"], "rank").mean())
    assert float(cells["diff", "rank_absolute"]["value"]) == pytest.approx(np.mean(found))
    gain = float(cells["diff", "rank_gain"]["value"])
    signed = float(cells["diff", "rank_signed"]["value"])
    assert gain == pytest.approx(float(cells["diff", "rank_absolute"]["value"]) - signed)
    assert ("transformer", "rank_absolute") not in cells


def test_sizes_are_solid_and_signed_weights_dashed(fake: FakeResults) -> None:
    results = load_results(fake.results, SCALE)
    drawn = picture_of(artifact_slice("dex_figure14", "figure"), results, fake)
    for axes in drawn.axes:
        assert len(axes.lines) == 4  # two rows, solid and dashed
        assert len({line.get_linestyle() for line in axes.lines}) == 2
