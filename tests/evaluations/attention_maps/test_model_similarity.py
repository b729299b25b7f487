"""Similarity of two models' maps against scipy, and figure 14 of Dex."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_configs import SCALE, resolved_artifact
from fake_results import FakeResults
from pictures import picture_of
from safetensors.numpy import load_file
from scipy.stats import pearsonr, spearmanr

from difftransformer.evaluations.attention_maps import model_similarity
from difftransformer.evaluations.attention_maps.model_similarity import correlations
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.table_job import build_table, make_table

QUERIES = np.array([6, 11])


@pytest.mark.parametrize(("measure", "reference"), [("spearman", spearmanr), ("pearson", pearsonr)])
def test_correlations_equal_scipy(measure: str, reference: object) -> None:
    draw = np.random.default_rng(0)
    maps, baseline = (draw.random((3, 2, 2, 12)).round(1) for _ in range(2))  # with ties
    result = correlations(maps, baseline, QUERIES, measure)
    for layer in range(2):
        expected = [
            reference(maps[w, layer, q, : stop + 1], baseline[w, layer, q, : stop + 1]).statistic  # type: ignore[operator]
            for w in range(3)
            for q, stop in enumerate(QUERIES)
        ]
        assert result[layer] == pytest.approx(np.mean(expected))


def test_constant_rows_are_left_out() -> None:
    draw = np.random.default_rng(1)
    maps, baseline = (draw.random((2, 1, 2, 12)) for _ in range(2))
    flat = maps.copy()
    flat[0] = 0.25
    expected = correlations(maps[1:], baseline[1:], QUERIES, "pearson")
    np.testing.assert_allclose(correlations(flat, baseline, QUERIES, "pearson"), expected)


def test_a_layer_without_attention_has_no_correlation() -> None:
    draw = np.random.default_rng(2)
    maps, baseline = (draw.random((3, 3, 2, 12)) for _ in range(2))
    maps[:, 1] = 0.0
    first, missing, last = correlations(maps, baseline, QUERIES, "spearman")
    assert np.isnan(missing) and not np.isnan([first, last]).any()


def test_a_layer_without_maps_is_left_out_of_the_mean(
    fake: FakeResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_first(*args: Any) -> Any:
        by_layer = correlations(*args)
        by_layer[0] = np.nan
        return by_layer

    monkeypatch.setattr(model_similarity, "correlations", without_first)
    artifact, results = resolved_artifact("dex_figure14"), load_results(fake.results, SCALE)
    for part in make_table(artifact, results).sections:
        for cell in part.cells:
            assert (cell.value is None) == cell.column.endswith("_l0"), cell.column
    lines = picture_of(artifact, results, fake).axes[0].lines
    assert {len(line.get_xdata()) for line in lines} <= {0, 1}


def test_the_table_compares_models_seed_by_seed(fake: FakeResults, tmp_path: Path) -> None:
    build_table(resolved_artifact("dex_figure14"), fake.results, tmp_path / "t")
    with (tmp_path / "t.csv").open(encoding="utf-8") as file:
        cells = {(line["row"], line["column"]): line for line in csv.DictReader(file)}
    folder = fake.root / "evaluations/attention_maps"
    expected = []
    for seed in (0, 1, 2):
        maps, baseline = (
            load_file(folder / run / str(seed) / "maps.safetensors")
            for run in ("diff", "transformer")
        )
        expected.append(
            correlations(maps["absolute"], baseline["signed"], maps["queries"], "spearman").mean()
        )
    assert float(cells["diff", "spearman_absolute"]["value"]) == pytest.approx(np.mean(expected))
    difference = float(cells["diff", "spearman_absolute_minus_signed"]["value"])
    signed = float(cells["diff", "spearman_signed"]["value"])
    assert difference == pytest.approx(float(cells["diff", "spearman_absolute"]["value"]) - signed)
    assert ("transformer", "spearman_absolute") not in cells


def test_absolute_weights_are_solid_and_signed_weights_dashed(fake: FakeResults) -> None:
    results = load_results(fake.results, SCALE)
    fig = picture_of(resolved_artifact("dex_figure14", "figure"), results, fake)
    for axes in fig.axes:
        assert len(axes.lines) == 4  # two rows, solid and dashed
        assert len({line.get_linestyle() for line in axes.lines}) == 2
