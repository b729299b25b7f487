"""Columns of histories as a table and as panels, from synthetic results."""

import math
from pathlib import Path

import pytest
from built_tables import build_and_read
from fake_adaptation import SCHEDULES
from fake_configs import SCALE, resolved_artifact
from fake_results import STEPS, FakeResults
from pictures import of_row, picture_of

from difftransformer.config.artifacts import typed_artifact
from difftransformer.errors import ConfigError
from difftransformer.planning.plan import Plan
from difftransformer.reporting.collect import load_results


def test_columns_are_fractions_of_training(fake: FakeResults, tmp_path: Path) -> None:
    cells = build_and_read(fake, "dex_figure8", tmp_path)
    for part in (10, 25, 50, 100):
        expected = 0.4 + 2 * math.exp(-STEPS * part / 100 / 60)
        for row in ("transformer", "diff", "diff_fixed_lambda"):
            values = float(cells[row, f"grad_norm_{part}"]["value"])
            assert values == pytest.approx(expected, abs=1e-9)


def test_lambda_ends_where_its_schedule_leads(fake: FakeResults, tmp_path: Path) -> None:
    cells = build_and_read(fake, "dex_figure11c", tmp_path)
    for run, height in SCHEDULES.items():
        assert float(cells[run, "lambda_l0_100"]["value"]) == pytest.approx(height)
        assert float(cells[run, "lambda_l1_25"]["value"]) == pytest.approx(height)


@pytest.mark.parametrize("name", ["dex_figure8", "dex_figure11c"])
def test_each_column_has_a_panel_with_every_row(fake: FakeResults, name: str) -> None:
    artifact = resolved_artifact(name, "figure")
    drawn = picture_of(artifact, load_results(fake.results, SCALE), fake)
    part = artifact.sections[0]
    assert [axes.get_ylabel() for axes in drawn.axes] == [c.header for c in part.options.curves]
    for axes in drawn.axes:
        assert all(of_row(drawn, axes, row.label) for row in part.rows)


def test_a_section_without_curves_gives_a_one_line_error(repository: Path) -> None:
    raw = Plan.load(repository / "config", {"scale": "tiny"}).resolver.artifacts["dex_figure8"]
    spoiled = raw.model_dump(mode="json")
    spoiled["sections"][0]["options"] = {"curves": []}
    with pytest.raises(ConfigError, match="curves") as refusal:
        typed_artifact(spoiled, "dex_figure8.yaml")
    assert "\n" not in str(refusal.value)
