"""Table and figures of head outputs, from synthetic results."""

from pathlib import Path

import pytest
from fake_configs import SCALE, resolved_artifact
from fake_head_features import HEADS
from fake_results import FakeResults
from pictures import picture_of

from difftransformer.errors import UserError
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.table_job import build_table


def test_the_table_has_the_change_by_dex_only_for_dex(fake: FakeResults, tmp_path: Path) -> None:
    build_table(resolved_artifact("dex_heads"), fake.results, tmp_path / "dex_heads")
    lines = (tmp_path / "dex_heads.md").read_text().splitlines()
    (dex,) = (line for line in lines if line.startswith("| Dex "))
    (diff,) = (line for line in lines if line.startswith("| DIFF "))
    assert "0.100" in dex and "0.020" in dex
    assert "0.100" not in diff


@pytest.mark.parametrize("name", ["dex_heads", "dex_figure6"])
def test_every_row_is_drawn(fake: FakeResults, name: str) -> None:
    artifact = resolved_artifact(name, "figure")
    fig = picture_of(artifact, load_results(fake.results, SCALE), fake)
    rows = [row.run for row in artifact.sections[0].rows]
    if name == "dex_figure6":
        first, second = fig.axes
        assert {len(line.get_xdata()) for line in first.lines} == {HEADS[run] for run in rows}
        for line in (*first.lines, *second.lines):
            heights = list(line.get_ydata())
            assert heights == sorted(heights, reverse=True) and heights[0] == 1
    else:
        maps = fig.axes[: len(rows)]
        sizes = [axes.images[0].get_array().shape for axes in maps]
        assert sizes == [(2 * HEADS[run], 2 * HEADS[run]) for run in rows]


def test_every_changed_head_is_a_point(fake: FakeResults) -> None:
    results = load_results(fake.results, SCALE)
    fig = picture_of(resolved_artifact("dex_figure11a", "figure"), results, fake)
    joint = fig.axes[0]
    (points,) = [c for c in joint.collections if len(c.get_offsets()) > 1]
    assert len(points.get_offsets()) == 3 * 2 * 4  # seeds, layers, every second of 8 heads


def test_a_figure_without_a_changed_head_fails(fake: FakeResults) -> None:
    artifact = resolved_artifact("dex_figure11a", "figure")
    row = artifact.sections[0].rows[0].model_copy(update={"run": "adapted_kvo"})
    section = artifact.sections[0].model_copy(update={"rows": [row]})
    with pytest.raises(UserError, match="Dex changed no head"):
        picture_of(artifact.model_copy(update={"sections": [section]}),
                   load_results(fake.results, SCALE), fake)  # fmt: skip
