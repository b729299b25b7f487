"""Table 2 and figure 5, from results with known counts."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from built_tables import metrics, read
from fake_configs import resolved_artifact
from fake_results import FakeResults, rewrite
from pictures import numbers, picture

from difftransformer.errors import UserError
from difftransformer.evaluations.needles import report
from difftransformer.reporting.cells import PublishedValues
from difftransformer.reporting.document import Cell
from difftransformer.reporting.figure_job import build_figure
from difftransformer.reporting.statistics import wilson_interval
from difftransformer.reporting.table_job import build_table


def test_table_2_is_the_mean_over_seeds_with_wilson_behind_each(
    fake: FakeResults, tmp_path: Path
) -> None:
    build_table(resolved_artifact("table2"), fake.results, tmp_path / "table2")
    cells = read(tmp_path / "table2.csv")
    results = metrics(fake, "needles", "recall_diff")
    for column in ("n1_r1", "n6_r2", "n6_r2_d25"):
        mean = sum(metrics_of_seed[f"accuracy_{column}"] for metrics_of_seed in results) / 3
        assert float(cells["recall_diff", column]["value"]) == pytest.approx(mean)
    drop = (
        sum(
            metrics_of_seed["accuracy_n1_r1"] - metrics_of_seed["accuracy_n6_r2"]
            for metrics_of_seed in results
        )
        / 3
    )
    assert float(cells["recall_diff", "drop"]["value"]) == pytest.approx(drop)
    assert cells["recall_diff", "n6_r2"]["paper_value"] == "0.85"
    assert cells["recall_transformer", "drop"]["paper_value"] == "0.45"
    assert ("recall_diff", "n6_r2_difference") in cells
    low, high = wilson_interval(int(results[0]["correct_n6_r2"]), 500)
    page = (tmp_path / "table2.html").read_text()
    assert f"({low:.2f} to {high:.2f}, 500 queries)" in page
    text = (tmp_path / "table2.md").read_text()
    assert "Wilson" in text
    assert "| N = 6, R = 2 ↑" in text.replace("  ", " ") and "depth 25%" not in text
    assert "A synthetic proxy for the paper's sentences: needles are keys" in text
    assert "city" not in text


def test_the_figure_of_one_seed_has_wilsons_interval_of_its_answers(fake: FakeResults) -> None:
    top = picture("table2", fake, (0,)).axes[0]
    intervals = [numbers(line) for line in top.lines if line.get_linewidth() == 1.6]
    result = metrics(fake, "needles", "recall_diff")[0]
    assert list(wilson_interval(int(result["correct_n6_r2"]), 500)) in intervals


@pytest.mark.parametrize(("last", "drop", "hardest"), [([6, 2], 0.45, 0.55), ([24, 2], None, None)])
def test_a_published_drop_needs_the_same_settings(
    last: list[int], drop: float | None, hardest: float | None
) -> None:
    context = SimpleNamespace(
        published=PublishedValues(resolved_artifact("table2").paper),
        suite=SimpleNamespace(pairs=[[1, 1], [2, 2], last]),
    )
    for column, value in (("drop", drop), ("hardest", hardest)):
        cell = Cell(row="recall_transformer", column=column, text="0.1")
        assert report._add_published(context, cell).paper_value == value  # type: ignore[arg-type]


def test_figure_5_as_a_table_names_the_longest(fake: FakeResults, tmp_path: Path) -> None:
    build_table(resolved_artifact("figure5"), fake.results, tmp_path / "figure5")
    cells = read(tmp_path / "figure5.csv")
    results = metrics(fake, "needles_long", "long_recall_diff")
    for column, name in (
        ("l128", "n8_r1_l128"), ("l128_d25", "n8_r1_l128_d25"), ("average", "n8_r1"),
        ("longest", "n8_r1_l256"), ("longest_d25", "n8_r1_l256_d25"),
    ):  # fmt: skip
        mean = sum(result[f"accuracy_{name}"] for result in results) / 3
        assert float(cells["long_recall_diff", column]["value"]) == pytest.approx(mean)
    assert cells["long_recall_diff", "longest_d25"]["paper_value"] == "0.88"


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_figure_5_is_drawn_with_and_without_published_panels(
    seeds: tuple[int, ...], fake: FakeResults, tmp_path: Path
) -> None:
    artifact = resolved_artifact("figure5", "figure", seeds)
    build_figure(artifact, fake.results, tmp_path / "both")
    alone = artifact.model_copy(update={"paper": None})
    build_figure(alone, fake.results, tmp_path / "alone")
    sizes = [(tmp_path / f"{name}.svg").stat().st_size for name in ("both", "alone")]
    assert sizes[0] > 1.3 * sizes[1] > 13_000


def test_accuracy_by_length_needs_lengths(small: FakeResults, tmp_path: Path) -> None:
    small.all_results((0,))
    for path in small.results:
        content = json.loads(path.read_text())
        if content["suite"] == "needles_long":
            content["settings"]["config"]["lengths"] = [256]
            rewrite(path, json.dumps(content))
    with pytest.raises(UserError, match=r"lengths \[256\]: accuracy by length needs two"):
        build_table(resolved_artifact("figure5", seeds=(0,)), small.results, tmp_path / "figure5")
