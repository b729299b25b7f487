"""Attention maps as tables and pictures, of made-up results."""

from pathlib import Path

import pytest
from fake_attention_maps import LAYERS, MAPS, attention_maps
from fake_results import FakeResults
from fake_slices import SCALE, artifact_slice
from pictures import legend_of, picture, picture_of

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.config.artifacts import Kind
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.table_job import build_table, make_table


def table(name: str, fake: FakeResults, tmp_path: Path) -> tuple[str, str]:
    build_table(artifact_slice(name), fake.results, tmp_path / name)
    return (tmp_path / f"{name}.md").read_text(), (tmp_path / f"{name}.csv").read_text()


def test_agreement_is_shown_with_what_salience_changes(fake: FakeResults, tmp_path: Path) -> None:
    shown, csv = table("dex_figure1", fake, tmp_path)
    assert "Rank correlation, top 5%" in shown and "JS divergence, top − all" in shown
    assert "by the map that is kept, from position 61 on" in shown
    assert "rank_change" in csv and "cosine_all_l1" in csv and "rank_change_l0" not in csv
    assert "JS divergence, beyond alike" in shown and "js_change_alike" in csv


def test_beyond_alike_is_the_change_less_that_of_maps_alike_everywhere(fake: FakeResults) -> None:
    made = make_table(artifact_slice("dex_figure1"), load_results(fake.results, SCALE))

    def number(column: str) -> float:
        cell = made.find("diff", column)
        assert cell is not None and cell.value is not None
        return cell.value

    for kind in ("rank", "js"):
        change, alike = number(f"{kind}_change"), number(f"{kind}_change_alike")
        assert change == pytest.approx(number(f"{kind}_top") - number(f"{kind}_all"))
        assert number(f"{kind}_beyond") == pytest.approx(change - alike)
        assert change * alike > 0 and abs(alike) < abs(change)


def test_a_row_without_a_second_map_has_no_number_of_it(fake: FakeResults, tmp_path: Path) -> None:
    shown, _ = table("dex_figure2", fake, tmp_path)
    header = next(line for line in shown.splitlines() if "Entropy of each map" in line).split("|")
    place = next(i for i, cell in enumerate(header) if cell.strip() == "Entropy of each map")
    cells = {
        row.split("|")[1].strip(): row.split("|")[place]
        for row in shown.splitlines()
        if row.startswith("| ")
    }
    assert "3." in cells["DIFF"] and "3." not in cells["Transformer"]


def test_agreement_has_a_panel_for_each_kind_and_three_lines_for_each_row(
    fake: FakeResults,
) -> None:
    drawn = picture("dex_figure1", fake)
    assert [axes.get_title(loc="left") for axes in drawn.axes] == [
        "Rank correlation", "Pearson correlation", "JS divergence", "Cosine distance",
    ]  # fmt: skip
    solid, dashed, dotted = (line.get_ydata()[0] for line in drawn.axes[0].lines[:3])
    assert solid > 0.5 > dotted > 0.3 > dashed
    assert legend_of(drawn)[:3] == ["all tokens", "top 5%", "top 5%, maps alike everywhere"]


@pytest.mark.parametrize(("panel", "rows"), [(0, 3), (2, 3), (3, 2), (4, 3)])
def test_a_panel_of_weights_leaves_out_what_a_row_has_not(
    fake: FakeResults, panel: int, rows: int
) -> None:
    axes = picture("dex_figure2", fake).axes[panel]
    assert len(axes.lines) == rows


def test_redundancy_has_lines_and_a_heat_map_of_all_heads(fake: FakeResults) -> None:
    lines, *maps = picture("dex_figure5", fake).axes
    rows = ("transformer", "transformer_halved_heads", "diff")
    assert len(lines.lines) == len(rows)
    sizes = [axes.images[0].get_array().shape for axes in maps[: len(rows)]]
    assert sizes == [(LAYERS * MAPS[row],) * 2 for row in rows]


def with_elsewhere(name: str, kind: Kind, fake: FakeResults, depth: int) -> ArtifactSlice:
    """An artifact with a first row for a model from elsewhere, every other layer without maps."""
    attention_maps(fake, "elsewhere_diff", 0, depth, range(1, depth, 2))
    artifact = artifact_slice(name, kind)
    (part,) = artifact.sections
    more = {"run": "elsewhere_diff", "label": "E", "pretrained": True, "facts": {}, "look": 20}
    row = part.rows[-1].model_copy(update=more | {"against": None})
    return artifact.model_copy(
        update={"sections": [part.model_copy(update={"rows": [row, *part.rows]})]}
    )


def test_a_deeper_model_from_elsewhere_stands_beside_ours(fake: FakeResults) -> None:
    artifact = with_elsewhere("dex_figure1", "table", fake, 6)
    table = make_table(artifact, load_results(fake.results, SCALE))

    def number(row: str, column: str) -> float | None:
        cell = table.find(row, column)
        assert cell is not None, (row, column)
        return cell.value

    assert number("elsewhere_diff", "rank_all_l5") is not None
    assert number("elsewhere_diff", "rank_all_l4") is None is number("diff", "rank_all_l5")
    assert number("diff", "rank_all_l1") is not None
    cell = table.find("elsewhere_diff", "rank_top")
    assert cell is not None and cell.n == 1 and cell.ci_low is None
    notes = " ".join(table.sections[0].notes)
    assert (
        "one value for all seeds" in notes and "held-out tokens in all, each model's own" in notes
    )


@pytest.mark.parametrize("depth", [6, 40])
def test_its_curves_are_at_the_layers_that_have_maps(fake: FakeResults, depth: int) -> None:
    artifact = with_elsewhere("dex_figure1", "figure", fake, depth)
    axes = picture_of(artifact, load_results(fake.results, SCALE), fake).axes[0]
    places = {tuple(line.get_xdata()) for line in axes.lines}
    assert places == {tuple(range(1, depth, 2)), tuple(range(LAYERS))}
    named = [label.get_text() for label in axes.get_xticklabels() if label.get_text()]
    assert named[0] == "1" and len(named) <= 12
    redundancy = with_elsewhere("dex_figure5", "figure", fake, depth)
    maps = picture_of(redundancy, load_results(fake.results, SCALE), fake).axes
    assert maps[1].images[0].get_array().shape == (2 * depth,) * 2
