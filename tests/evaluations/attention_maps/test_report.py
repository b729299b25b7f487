"""Tables and figures of attention maps, from synthetic results."""

import re
from pathlib import Path

import pytest
from fake_attention_maps import LAYERS, MAPS, attention_maps
from fake_configs import SCALE, resolved_artifact
from fake_results import FakeResults
from pictures import legend_of, picture, picture_of

from difftransformer.config.artifacts import Kind
from difftransformer.config.resolved_artifacts import ResolvedArtifact
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.table_job import build_table, make_table


def table(name: str, fake: FakeResults, tmp_path: Path) -> tuple[str, str]:
    build_table(resolved_artifact(name), fake.results, tmp_path / name)
    return (tmp_path / f"{name}.md").read_text(), (tmp_path / f"{name}.csv").read_text()


def test_similarity_is_shown_with_its_change_on_salient_tokens(
    fake: FakeResults, tmp_path: Path
) -> None:
    text, csv = table("dex_figure1", fake, tmp_path)
    assert "Rank correlation, top 5%" in text and "JS divergence, top − all" in text
    assert re.search("positive map, from position 61 on.*Surrogate", text)
    assert "spearman_change" in csv and "cosine_all_l1" in csv and "spearman_change_l0" not in csv
    assert "JS divergence, top − all, minus surrogate" in text and "js_change_surrogate" in csv


def test_excess_is_the_change_minus_that_of_surrogate_maps(fake: FakeResults) -> None:
    built = make_table(resolved_artifact("dex_figure1"), load_results(fake.results, SCALE))

    def number(column: str) -> float:
        cell = built.find("diff", column)
        assert cell is not None and cell.value is not None
        return cell.value

    for measure in ("spearman", "js"):
        change, surrogate = number(f"{measure}_change"), number(f"{measure}_change_surrogate")
        assert change == pytest.approx(number(f"{measure}_top") - number(f"{measure}_all"))
        assert number(f"{measure}_excess") == pytest.approx(change - surrogate)
        assert change * surrogate > 0 and abs(surrogate) < abs(change)


def test_a_head_with_one_map_has_no_entropy_of_each_map(fake: FakeResults, tmp_path: Path) -> None:
    text, _ = table("dex_figure2", fake, tmp_path)
    header = next(line for line in text.splitlines() if "Entropy of each map" in line).split("|")
    column = next(i for i, cell in enumerate(header) if cell.strip() == "Entropy of each map")
    cells = {
        row.split("|")[1].strip(): row.split("|")[column]
        for row in text.splitlines()
        if row.startswith("| ")
    }
    assert "3." in cells["DIFF"] and "3." not in cells["Transformer"]


def test_similarity_has_a_panel_per_measure_and_three_lines_per_row(fake: FakeResults) -> None:
    fig = picture("dex_figure1", fake)
    assert [axes.get_title(loc="left") for axes in fig.axes] == [
        "Rank correlation", "Pearson correlation", "JS divergence", "Cosine distance",
    ]  # fmt: skip
    solid, dashed, dotted = (line.get_ydata()[0] for line in fig.axes[0].lines[:3])
    assert solid > 0.5 > dotted > 0.3 > dashed
    assert legend_of(fig)[:3] == ["all tokens", "top 5%", "top 5%, surrogate maps"]


@pytest.mark.parametrize(("panel", "rows"), [(0, 3), (2, 3), (3, 2), (4, 3)])
def test_a_panel_leaves_out_rows_without_its_metric(
    fake: FakeResults, panel: int, rows: int
) -> None:
    axes = picture("dex_figure2", fake).axes[panel]
    assert len(axes.lines) == rows


def test_head_redundancy_has_curves_and_a_heat_map_per_row(fake: FakeResults) -> None:
    lines, *maps = picture("dex_figure5", fake).axes
    rows = ("transformer", "transformer_halved_heads", "diff")
    assert len(lines.lines) == len(rows)
    sizes = [axes.images[0].get_array().shape for axes in maps[: len(rows)]]
    assert sizes == [(LAYERS * MAPS[row],) * 2 for row in rows]


def with_pretrained(name: str, kind: Kind, fake: FakeResults, depth: int) -> ResolvedArtifact:
    """Return an artifact with a pretrained model first, every other layer without maps."""
    attention_maps(fake, "pretrained_diff", 0, depth, range(1, depth, 2))
    artifact = resolved_artifact(name, kind)
    (part,) = artifact.sections
    changes = {"run": "pretrained_diff", "label": "E", "pretrained": True, "facts": {}, "color": 20}
    row = part.rows[-1].model_copy(update=changes | {"baseline": None})
    return artifact.model_copy(
        update={"sections": [part.model_copy(update={"rows": [row, *part.rows]})]}
    )


def test_a_deeper_pretrained_model_is_compared_with_ours(fake: FakeResults) -> None:
    artifact = with_pretrained("dex_figure1", "table", fake, 6)
    table = make_table(artifact, load_results(fake.results, SCALE))

    def number(row: str, column: str) -> float | None:
        cell = table.find(row, column)
        assert cell is not None, (row, column)
        return cell.value

    assert number("pretrained_diff", "spearman_all_l5") is not None
    assert number("pretrained_diff", "spearman_all_l4") is None is number("diff", "spearman_all_l5")
    assert number("diff", "spearman_all_l1") is not None
    cell = table.find("pretrained_diff", "spearman_top")
    assert cell is not None and cell.n == 1 and cell.ci_low is None
    notes = " ".join(table.sections[0].notes)
    assert (
        "one value for all seeds" in notes
        and "held-out tokens in all, as each model tokenizes them" in notes
    )


@pytest.mark.parametrize("depth", [6, 40])
def test_its_curves_have_points_at_the_layers_with_maps(fake: FakeResults, depth: int) -> None:
    artifact = with_pretrained("dex_figure1", "figure", fake, depth)
    axes = picture_of(artifact, load_results(fake.results, SCALE), fake).axes[0]
    layers = {tuple(line.get_xdata()) for line in axes.lines}
    assert layers == {tuple(range(1, depth, 2)), tuple(range(LAYERS))}
    ticks = [label.get_text() for label in axes.get_xticklabels() if label.get_text()]
    assert ticks[0] == "1" and len(ticks) <= 12
    heat_maps = with_pretrained("dex_figure5", "figure", fake, depth)
    maps = picture_of(heat_maps, load_results(fake.results, SCALE), fake).axes
    assert maps[1].images[0].get_array().shape == (2 * depth,) * 2
