"""Table 2 of Dex, from synthetic results."""

import csv
import json
from pathlib import Path

import pytest
from fake_configs import SCALE, resolved_artifact
from fake_results import FakeResults
from pictures import of_row, picture_of

from difftransformer.reporting.collect import load_results
from difftransformer.reporting.table_job import build_table


def test_shares_by_depth_are_beside_the_published_ones(fake: FakeResults, tmp_path: Path) -> None:
    build_table(resolved_artifact("dex_table2"), fake.results, tmp_path / "t")
    with (tmp_path / "t.csv").open(encoding="utf-8") as file:
        cells = {(line["row"], line["column"]): line for line in csv.DictReader(file)}
    paths = [path for path in fake.results if "/effective_attention/adapted_long_dex/" in str(path)]
    values = [json.loads(path.read_text())["metrics"]["answer_effective_d50"] for path in paths]
    cell = cells["adapted_long_dex", "answer_effective_d50"]
    assert float(cell["value"]) == pytest.approx(sum(values) / len(values))
    assert cell["paper_value"] == "0.18"
    assert cells["adapted_long_dex", "trained_parameters"]["value"] == "98818.0"
    assert ("long_recall_transformer", "trained_parameters") not in cells
    assert "Projected" in (tmp_path / "t.md").read_text()


def test_the_figure_has_a_panel_per_kind(fake: FakeResults) -> None:
    results = load_results(fake.results, SCALE)
    fig = picture_of(resolved_artifact("dex_table2", "figure"), results, fake)
    titles = [axes.get_title(loc="left") for axes in fig.axes]
    assert titles == ["Effective attention", "Effective, by gradient descent", "Attention weights"]
    for label in ("Transformer", "KVO (Dex without W_D)", "Dex"):
        assert all(len(of_row(fig, axes, label)) == 1 for axes in fig.axes)
