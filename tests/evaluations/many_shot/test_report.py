"""Figures 6, 7 and 11 from results with known counts."""

from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev

import pytest
from built_tables import metrics, read
from fake_configs import resolved_artifact
from fake_many_shot import many_shot_suite
from fake_results import FakeResults
from matplotlib.collections import LineCollection
from pictures import legend_of, picture

from difftransformer.errors import UserError
from difftransformer.evaluations.many_shot.figure import accuracy, accuracy_by_order, plateau
from difftransformer.evaluations.many_shot.settings import Options, Suite
from difftransformer.provenance.result import Result, read_result
from difftransformer.reporting.table_job import build_table


def suite_of(result: Result) -> Suite:
    return Suite.model_validate(result.settings["config"])


def test_figure_6_has_accuracy_by_number_and_the_plateau(fake: FakeResults, tmp_path: Path) -> None:
    build_table(resolved_artifact("figure6"), fake.results, tmp_path / "figure6")
    cells = read(tmp_path / "figure6.csv")
    for task, classes in {"trec": 2, "clinic150": 8}.items():
        results = metrics(fake, f"icl_{task}", "icl_diff")
        first, *late = [classes, 2 * classes, 3 * classes]
        mean = 100 * fmean(by_seed[f"accuracy_n{first}"] for by_seed in results)
        at_first = cells["icl_diff", f"{task}_generated_n{first}"]
        assert float(at_first["value"]) == pytest.approx(mean) and not at_first["paper_value"]
        mean = 100 * fmean(by_seed[f"accuracy_n{number}"] for by_seed in results for number in late)
        assert float(cells["icl_diff", f"{task}_plateau"]["value"]) == pytest.approx(mean)
    assert cells["icl_transformer", "clinic150_plateau"]["paper_value"] == "72.5"
    text = (tmp_path / "figure6.md").read_text()
    assert "synthetic proxy: generated items, 8 classes" in text
    assert "guessing gives 12.5" in text
    assert "40% of the words of demonstrations are of another class" in text


def test_figures_7_and_11_have_the_spread_over_orders(fake: FakeResults, tmp_path: Path) -> None:
    for name, suite, column, number, orders in (
        ("figure11", "icl_banking77_random", "banking77_random", 18, 10),
        ("figure7", "icl_trec_alternating", "trec_alternating", 6, 30),
    ):
        build_table(resolved_artifact(name), fake.results, tmp_path / name)
        cells = read(tmp_path / f"{name}.csv")
        accuracy_by_order = [
            [100 * by_seed[f"accuracy_n{number}_o{order}"] for order in range(orders)]
            for by_seed in metrics(fake, suite, "icl_diff")
        ]
        for ending, value in {
            "margin": fmean(max(by_seed) - min(by_seed) for by_seed in accuracy_by_order),
            "deviation": fmean(stdev(by_seed) for by_seed in accuracy_by_order),
            "mean": fmean(fmean(by_seed) for by_seed in accuracy_by_order),
            "o3": fmean(by_seed[3] for by_seed in accuracy_by_order),
        }.items():
            results = float(cells["icl_diff", f"{column}_{ending}"]["value"])
            assert results == pytest.approx(value), ending
    assert cells["icl_transformer", "trec_alternating_margin"]["paper_value"] == "56.7"
    assert cells["icl_diff", "trec_alternating_o0"]["paper_value"] == "90.0"


def test_the_plateau_is_the_upper_half() -> None:
    assert plateau([6, 12, 30, 60]) == [30, 60] and plateau([8]) == [8]


def test_orders_are_those_of_the_largest_number(small: FakeResults) -> None:
    many_shot_suite(small, "icl_diff", 0, "icl", "trec", [6, 12], "random", 4)
    (path,) = small.results
    result = read_result(path)
    shares = [float(result.metrics[f"accuracy_n12_o{order}"] or 0) for order in range(4)]
    assert accuracy_by_order(suite_of(result), result) == [100 * share for share in shares]


@pytest.mark.parametrize(
    "measure",
    [
        lambda result: accuracy_by_order(suite_of(result), result),
        lambda result: accuracy(result, 6),
    ],
)
def test_an_undefined_accuracy_is_refused(
    measure: Callable[[Result], object], small: FakeResults
) -> None:
    many_shot_suite(small, "icl_diff", 0, "icl", "trec", [6], "random", 2)
    (path,) = small.results
    result = read_result(path)
    metrics = result.metrics | {"accuracy_n6": None, "accuracy_n6_o1": None}
    with pytest.raises(UserError, match=r"icl-0-.*: accuracy_n6.* is undefined"):
        measure(result.model_copy(update={"metrics": metrics}))


def test_one_order_has_no_spread(fake: FakeResults, tmp_path: Path) -> None:
    artifact = resolved_artifact("figure6")
    part = artifact.sections[0].model_copy(update={"options": Options(by="order")})
    with pytest.raises(UserError, match="icl_trec' has one order"):
        build_table(artifact.model_copy(update={"sections": [part]}), fake.results, tmp_path / "t")


def test_the_figure_shows_best_minus_worst_per_seed_and_published(fake: FakeResults) -> None:
    artifact, figure = resolved_artifact("figure7", "figure"), picture("figure7", fake)
    results = []
    for axes, part in zip(figure.axes, artifact.sections, strict=True):
        title = axes.get_title("left").replace("\n", " ")
        assert title == f"{part.title} (synthetic proxy: generated items, 2 classes)"
        texts = [text.get_text() for text in axes.texts]
        margins = []
        for row in part.rows:
            for by_seed in metrics(fake, part.suites[0], row.run):
                shares = [100 * share for name, share in by_seed.items() if "_o" in name]
                margins.append(f"{max(shares) - min(shares):.0f}")
        assert texts[: len(margins)] == margins
        results.append(texts[len(margins) :])
        (guessing,) = (
            by_seed for by_seed in axes.collections if isinstance(by_seed, LineCollection)
        )
        ((start, _), (end, _)) = guessing.get_segments()[0]
        assert (start, end) == (-0.5, len(margins) - 0.5)
    assert "guessing on our items" in legend_of(figure)
    assert "57" in results[-1]  # the Transformer's in alternating order, 56.7
