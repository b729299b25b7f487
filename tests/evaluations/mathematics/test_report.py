"""Figures 9 and 10 as tables, from results with known accuracies."""

import json
from pathlib import Path

import pytest
from built_tables import read
from fake_configs import resolved_artifact
from fake_mathematics import CHECKPOINT_TOKENS, mathematics
from fake_results import FakeResults, rewrite
from pictures import changed, hollow, legend_of, numbers, of_row, picture_of

from difftransformer.data.math_sets import MATH_SETS
from difftransformer.errors import UserError
from difftransformer.evaluations.mathematics.report import accuracy
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.statistics import paired_contrast
from difftransformer.reporting.table_job import build_table, make_table


def means(fake: FakeResults, suite: str, run: str, name: str) -> float:
    paths = [path for path in fake.results if f"/evaluations/{suite}/{run}/" in str(path)]
    values = [json.loads(path.read_text())["metrics"][name] for path in paths]
    assert len(values) == 3
    return float(sum(values) / 3)


def test_figure_9_has_the_mean_over_sets_by_tokens(fake: FakeResults, tmp_path: Path) -> None:
    build_table(resolved_artifact("figure9"), fake.results, tmp_path / "figure9")
    cells, suite = read(tmp_path / "figure9.csv"), "mathematics_by_tokens"
    for tokens in CHECKPOINT_TOKENS:
        expected = 100 * means(fake, suite, "math_diff", f"average_t{tokens}")
        assert float(cells["math_diff", f"t{tokens}"]["value"]) == pytest.approx(expected)
        expected = 100 * means(fake, suite, "math_diff", f"svamp_t{tokens}")
        assert float(cells["math_diff", f"svamp_t{tokens}"]["value"]) == pytest.approx(expected)
    assert cells["math_diff", "final"]["paper_value"] == "31.4"
    assert ("math_diff", "final_difference") in cells
    text = (tmp_path / "figure9.md").read_text()
    assert "generated arithmetic" in text


def test_figure_10_has_every_set_and_the_length_of_output(
    fake: FakeResults, tmp_path: Path
) -> None:
    build_table(resolved_artifact("figure10"), fake.results, tmp_path / "figure10")
    cells, run = read(tmp_path / "figure10.csv"), "reasoning_transformer"
    for column, factor in (("gsm8k", 100), ("average", 100), ("average_tokens", 1)):
        expected = factor * means(fake, "mathematics", run, column)
        assert float(cells[run, column]["value"]) == pytest.approx(expected)
    assert cells[run, "average_tokens"]["paper_value"] == "6913.0"
    assert cells["reasoning_diff", "tabmwp"]["paper_value"] == "32.4"
    text = (tmp_path / "figure10.md").read_text()
    assert "reach that limit" in text


def test_a_run_without_intermediate_checkpoints_has_no_curve(
    small: FakeResults, tmp_path: Path
) -> None:
    for row in resolved_artifact("figure9").sections[0].rows:
        small.language_model(row.run, 0)
        mathematics(small, row.run, 0, "mathematics_by_tokens")
        path = small.root / f"runs/{row.run}/0/training.json"
        result = json.loads(path.read_text())
        result["settings"]["training"]["save_checkpoints_at"] = []
        rewrite(path, json.dumps(result))
    with pytest.raises(UserError, match=r"only at the end.*`training.save_checkpoints_at`"):
        build_table(resolved_artifact("figure9", seeds=(0,)), small.results, tmp_path / "figure9")


@pytest.mark.parametrize("seeds", [(0, 1, 2), (0,)])
def test_bars_of_figure_10_are_over_seeds_or_over_the_items_of_the_only_one(
    seeds: tuple[int, ...], fake: FakeResults
) -> None:
    artifact = resolved_artifact("figure10", "figure", seeds)
    results = changed(load_results(fake.results, "tiny"), "mathematics", gsm8k_stderr=0.01)
    top, _ = picture_of(artifact, results, fake).axes
    bars = {tuple(line.get_ydata()) for line in top.lines if line.get_linewidth() == 1.6}
    for row in artifact.sections[0].rows:
        results_ = [results.evaluation("mathematics", row.run, seed) for seed in seeds]
        values = [accuracy(result, "gsm8k") for result in results_]
        low, high = paired_contrast(values).interval()
        if len(seeds) == 1:
            low, high = values[0] - 1.96, values[0] + 1.96
        assert low is not None and high is not None
        assert any(bar == pytest.approx((max(0.0, low), min(100.0, high))) for bar in bars)


def test_accuracies_without_a_standard_error_have_no_bar(fake: FakeResults) -> None:
    results = changed(load_results(fake.results, "tiny"), "mathematics", gsm8k_stderr=None)
    cell = make_table(resolved_artifact("figure10"), results).find("reasoning_diff", "gsm8k")
    assert cell is not None and not any("s.e." in seed.text for seed in cell.seeds)
    artifact = resolved_artifact("figure10", "figure", (0,))
    top, _ = picture_of(artifact, results, fake).axes
    bars = sum(line.get_linewidth() == 1.6 and numbers(line) != [] for line in top.lines)
    assert bars == len(artifact.sections[0].rows) * len(MATH_SETS)  # Avg has one, gsm8k none


@pytest.mark.parametrize("data", ["builtin", "hub"])
def test_published_accuracies_are_drawn_only_beside_the_real_sets(
    data: str, fake: FakeResults
) -> None:
    results = changed(load_results(fake.results, "tiny"), "mathematics", data)
    figure = picture_of(resolved_artifact("figure10", "figure"), results, fake)
    top, bottom = figure.axes
    named = hollow(top) and "published" in legend_of(figure)
    if data == "hub":
        assert named and "published: " in bottom.get_title("left")
        assert "synthetic proxy" not in top.get_title("left")
    else:
        assert not named and "published" not in bottom.get_title("left")
        assert top.get_title("left").endswith("(synthetic proxy: generated arithmetic)")


def test_the_curves_of_figure_9_go_up_in_tokens_to_the_final_weights(fake: FakeResults) -> None:
    artifact = resolved_artifact("figure9", "figure")
    results = load_results(fake.results, "tiny")
    figure = picture_of(artifact, results, fake)
    drawn, published = figure.axes
    assert "synthetic proxy: generated arithmetic" in drawn.get_title("left")
    assert "synthetic proxy" not in published.get_title("left")
    rows = artifact.sections[0].rows
    assert rows
    for row in rows:
        (line,) = of_row(figure, drawn, row.label)
        x, y = line.get_data()
        last = results.training(row.run, 0).metrics["tokens"]
        assert list(x) == [*CHECKPOINT_TOKENS, last] == sorted(x)
        names = [*(f"average_t{tokens}" for tokens in CHECKPOINT_TOKENS), "average"]
        expected = [100 * means(fake, "mathematics_by_tokens", row.run, name) for name in names]
        assert list(y) == pytest.approx(expected)
