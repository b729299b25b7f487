"""Figure 4 as a table, from results with known losses."""

import json
from pathlib import Path

import pytest
from built_tables import read
from fake_configs import resolved_artifact
from fake_results import FakeResults, rewrite

from difftransformer.errors import UserError
from difftransformer.reporting.table_job import build_table


def test_differences_of_figure_4_are_paired_and_published_curves_named(
    fake: FakeResults, tmp_path: Path
) -> None:
    build_table(resolved_artifact("figure4"), fake.results, tmp_path / "figure4")
    cells = read(tmp_path / "figure4.csv")
    by_run = {
        run: [
            json.loads(path.read_text())["metrics"]["nll_p16"]
            for path in fake.results
            if f"evaluations/nll_by_position/{run}/" in str(path)
        ]
        for run in ("long_transformer", "long_diff")
    }
    pairs = zip(by_run["long_diff"], by_run["long_transformer"], strict=True)
    difference = sum(ours - theirs for ours, theirs in pairs) / 3
    cell = cells["long_diff", "nll_p16_difference"]
    assert float(cell["value"]) == pytest.approx(difference)
    assert float(cell["ci_low"]) < difference < float(cell["ci_high"])
    assert ("long_transformer", "nll_p16_difference") not in cells
    text = (tmp_path / "figure4.md").read_text()
    assert "Published at the paper's scale" in text and "levels are inferred" in text
    assert "In brackets: published" not in text


def test_only_extended_rows_have_an_extension_note(small: FakeResults, tmp_path: Path) -> None:
    small.all_results((0,))
    for run, phrases in (
        ("long_diff", ["Extension to ", "; Transformer continues transformer."]),
        ("long_transformer", []),
    ):
        path = next(p for p in small.results if str(p).endswith(f"runs/{run}/0/training.json"))
        content = json.loads(path.read_text())
        content["settings"]["init_from"] = None
        rewrite(path, json.dumps(content))
        build_table(resolved_artifact("figure4", seeds=(0,)), small.results, tmp_path / "figure4")
        text = (tmp_path / "figure4.md").read_text()
        assert all(part in text for part in phrases) and "None" not in text
        assert ("Extension to " in text) == bool(phrases)


def test_rows_measured_at_different_positions_share_no_table(
    small: FakeResults, tmp_path: Path
) -> None:
    small.all_results((0,))
    path = next(p for p in small.results if "nll_by_position/long_diff/" in str(p))
    content = json.loads(path.read_text())
    content["settings"]["config"]["num_positions"] = 8
    rewrite(path, json.dumps(content))
    with pytest.raises(UserError, match=r"config\.num_positions is 12 in .* and 8 in"):
        build_table(resolved_artifact("figure4", seeds=(0,)), small.results, tmp_path / "figure4")
