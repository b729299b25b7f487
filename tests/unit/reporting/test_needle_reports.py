"""Tables 2 and 3 and figures 1 and 5, from results with known counts."""

import csv
import json
from pathlib import Path

import pytest
from fake_results import FakeResults, rewrite
from fake_slices import artifact_slice, declarations

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.config.artifacts import Kind
from difftransformer.errors import UserError
from difftransformer.reporting.figure_job import build_figure
from difftransformer.reporting.statistics import wilson_interval
from difftransformer.reporting.table_job import build_table


def read(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return {(line["row"], line["column"]): line for line in csv.DictReader(file)}


def figure5(kind: Kind, seeds: tuple[int, ...] = (0, 1, 2)) -> ArtifactSlice:
    """Table 2's slice, made to show the runs that were extended."""
    artifact = artifact_slice("table2", kind, seeds)
    part = artifact.sections[0]
    rows = [
        row.model_copy(
            update={"run": f"long_{row.run}", "against": row.against and f"long_{row.against}"}
        )
        for row in part.rows
    ]
    part = part.model_copy(
        update={"rows": rows, "suites": ["needles_long"], "measures": "needles_long"}
    )
    changes = {
        "artifact": "figure5", "builder": "figure5", "sections": [part], "claims": {},
        "paper": declarations().paper["diff_v1_fig5"],
    }  # fmt: skip
    return artifact.model_copy(update=changes)


def metrics(fake: FakeResults, suite: str, run: str) -> list[dict[str, float]]:
    paths = [path for path in fake.results if f"/evaluations/{suite}/{run}/" in str(path)]
    return [json.loads(path.read_text())["metrics"] for path in sorted(paths)]


def test_table_2_is_the_mean_over_seeds_with_wilson_behind_each(
    fake: FakeResults, tmp_path: Path
) -> None:
    build_table(artifact_slice("table2"), fake.results, tmp_path / "table2")
    cells = read(tmp_path / "table2.csv")
    found = metrics(fake, "needles", "recall_diff")
    for column in ("n1_r1", "n6_r2", "n6_r2_d25"):
        mean = sum(one[f"accuracy_{column}"] for one in found) / 3
        assert float(cells["recall_diff", column]["value"]) == pytest.approx(mean)
    drop = sum(one["accuracy_n1_r1"] - one["accuracy_n6_r2"] for one in found) / 3
    assert float(cells["recall_diff", "drop"]["value"]) == pytest.approx(drop)
    assert cells["recall_diff", "n6_r2"]["paper_value"] == "0.85"
    assert cells["recall_transformer", "drop"]["paper_value"] == "0.45"
    assert ("recall_diff", "n6_r2_difference") in cells
    low, high = wilson_interval(int(found[0]["correct_n6_r2"]), 500)
    page = (tmp_path / "table2.html").read_text()
    assert f"({low:.2f} to {high:.2f}, 500 asked)" in page
    text = (tmp_path / "table2.md").read_text()
    assert "Wilson" in text and "C3.1" in text and "confirmed" in text
    assert "| N = 6, R = 2 ↑" in text.replace("  ", " ") and "depth 25%" not in text


def test_table_3_has_answer_and_noise_by_depth(fake: FakeResults, tmp_path: Path) -> None:
    build_table(artifact_slice("table3"), fake.results, tmp_path / "table3")
    cells = read(tmp_path / "table3.csv")
    for run in ("recall_transformer", "recall_diff"):
        found = metrics(fake, "attention_allocation", run)
        for column in ("answer_d75", "noise_d0", "answer", "noise", "bos", "query"):
            mean = sum(one[column] for one in found) / 3
            assert float(cells[run, column]["value"]) == pytest.approx(mean)
    assert cells["recall_diff", "answer_d100"]["paper_value"] == "0.4"
    parts = [float(cells["recall_diff", name]["value"]) for name in ("bos", "answer", "query")]
    assert sum(parts) + float(cells["recall_diff", "noise"]["value"]) == pytest.approx(1)
    text = (tmp_path / "table3.md").read_text()
    assert "divided by the sum of its absolute values" in text and "C3.7" in text


def test_figure_5_as_a_table_names_the_longest(fake: FakeResults, tmp_path: Path) -> None:
    build_table(figure5("table"), fake.results, tmp_path / "figure5")
    cells = read(tmp_path / "figure5.csv")
    found = metrics(fake, "needles_long", "long_recall_diff")
    for column, name in (
        ("l128", "n8_r1_l128"), ("l128_d25", "n8_r1_l128_d25"), ("average", "n8_r1"),
        ("longest", "n8_r1_l256"), ("longest_d25", "n8_r1_l256_d25"),
    ):  # fmt: skip
        mean = sum(one[f"accuracy_{name}"] for one in found) / 3
        assert float(cells["long_recall_diff", column]["value"]) == pytest.approx(mean)
    assert cells["long_recall_diff", "longest_d25"]["paper_value"] == "0.88"


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_figure_5_is_drawn_with_and_without_published_panels(
    seeds: tuple[int, ...], fake: FakeResults, tmp_path: Path
) -> None:
    artifact = figure5("figure", seeds)
    build_figure(artifact, fake.results, fake.histories, tmp_path / "both")
    alone = artifact.model_copy(update={"paper": None})
    build_figure(alone, fake.results, fake.histories, tmp_path / "alone")
    sizes = [(tmp_path / f"{name}.svg").stat().st_size for name in ("both", "alone")]
    assert sizes[0] > 1.3 * sizes[1] > 13_000


def test_accuracy_by_length_needs_lengths(small: FakeResults, tmp_path: Path) -> None:
    small.everything((0,))
    for path in small.results:
        content = json.loads(path.read_text())
        if content["suite"] == "needles_long":
            content["settings"]["config"]["lengths"] = [256]
            rewrite(path, json.dumps(content))
    with pytest.raises(UserError, match=r"lengths \[256\]: accuracy by length needs two"):
        build_table(figure5("table", (0,)), small.results, tmp_path / "figure5")


def test_an_example_that_is_not_there_is_named(small: FakeResults, tmp_path: Path) -> None:
    small.everything((0,))
    (small.root / "evaluations/attention_allocation/recall_diff/0/example.json").unlink()
    with pytest.raises(UserError, match=r"no example\.json of evaluation 'attention_allocation'"):
        build_figure(
            artifact_slice("figure1", "figure", (0,)),
            small.results,
            small.histories,
            tmp_path / "f",
        )


def test_long_prompts_are_drawn_in_fewer_columns(small: FakeResults, tmp_path: Path) -> None:
    import numpy as np

    from difftransformer.reporting.figures.figure1 import _columns

    weights = np.zeros((3, 1000))
    weights[0, 500], weights[1, 999], weights[2, 0] = -0.9, 0.5, 0.1
    drawn = _columns(weights)
    assert drawn.shape == (3, 160)
    assert [(row.min(), row.max()) for row in drawn] == [(-0.9, 0), (0, 0.5), (0, 0.1)]
