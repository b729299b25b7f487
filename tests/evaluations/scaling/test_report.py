"""Figures 3a and 3b as tables: points, curves, and equal loss within the measured range."""

import csv
import json
import math
from pathlib import Path

import pytest
from fake_configs import RESOLVER, resolved_artifact
from fake_results import FakeResults, rewrite
from pictures import legend_of, picture, picture_of
from scipy import stats

from difftransformer.config.resolved_artifacts import ResolvedArtifact
from difftransformer.errors import DataError
from difftransformer.evaluations.scaling.curves import parameters
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.table_job import build_table, make_table

SIZES = RESOLVER.members("transformer", "parameters")
WIDTHS = [32, 64, 96, 128, 192]


def set_losses(fake: FakeResults, losses: dict[str, list[float]], noise: float = 0.0) -> None:
    """Write the losses of each row by size; seeds differ by ``noise``."""
    loss_of_run = {
        run: loss
        for row, values in losses.items()
        for run, loss in zip(RESOLVER.members(row, "parameters"), values, strict=True)
    }
    for path in fake.results:
        result = json.loads(path.read_text())
        if result["suite"] == "validation_slices" and result["run"] in loss_of_run:
            result["metrics"]["loss"] = loss_of_run[result["run"]] + noise * result["seed"]
            rewrite(path, json.dumps(result))


def built(fake: FakeResults, artifact: ResolvedArtifact) -> TableDocument:
    return make_table(artifact, load_results(fake.results, artifact.scale))


def sizes(fake: FakeResults, row: str) -> list[float]:
    results = load_results(fake.results, "tiny")
    runs = RESOLVER.members(row, "parameters")
    return [parameters(results.training(run, 0), "one_embedding") for run in runs]


def value(table: TableDocument, row: str, column: str) -> float | None:
    cell = table.find(row, column)
    assert cell is not None, (row, column)
    return cell.value


def power(x: float, shift: float = 1.0) -> float:
    """Return the loss of a synthetic curve: the Transformer's at ``shift`` times the size."""
    return 2.0 + 60 * (x * shift) ** -0.4


def test_the_fraction_needed_is_that_of_the_curves(small: FakeResults) -> None:
    """DIFF of x has the loss of a Transformer of 1.25 x by construction."""
    small.all_results()
    losses = {
        "transformer": [power(x) for x in sizes(small, "transformer")],
        "diff": [power(x, 1.25) for x in sizes(small, "diff")],
    }
    set_losses(small, losses, noise=1e-6)
    table = built(small, resolved_artifact("figure3a"))
    assert value(table, "diff", "equal_loss_ratio") == pytest.approx(0.8, abs=1e-3)
    assert value(table, "diff", "exponent") == pytest.approx(0.4, abs=1e-3)
    assert value(table, "diff", "offset") == pytest.approx(2.0, abs=1e-3)
    assert value(table, "diff", "compare_x") == pytest.approx(0.52 * sizes(small, "diff")[-1])
    assert value(table, "diff_size_64", "point_equal_loss_ratio") == pytest.approx(0.8, abs=1e-3)


def test_intervals_are_t_intervals_of_single_seeds(fake: FakeResults) -> None:
    for name in ("figure3a", "figure3b"):
        table = built(fake, resolved_artifact(name))
        for column in ("equal_loss_ratio", "equal_loss_x", "exponent"):
            cell = table.find("diff", column)
            assert cell is not None and cell.value is not None
            values = list(cell.by_seed().values())
            expected = stats.t.interval(0.95, 2, sum(values) / 3, stats.sem(values))
            assert (cell.ci_low, cell.ci_high) == pytest.approx(expected)
            assert " to " in cell.text


def test_no_interval_if_a_seed_is_out_of_range(small: FakeResults) -> None:
    small.all_results()
    x = sizes(small, "transformer"), sizes(small, "diff")
    ours = [power(size, 1.5) for size in x[1]]
    set_losses(small, {"transformer": [power(size) for size in x[0]], "diff": ours}, noise=1e-6)
    members = RESOLVER.members("diff", "parameters")
    for path in small.results:
        result = json.loads(path.read_text())
        if (
            result["suite"] == "validation_slices"
            and result["run"] in members
            and result["seed"] == 2
        ):
            index = members.index(result["run"])
            result["metrics"]["loss"] = power(x[1][index], 3.0)
            rewrite(path, json.dumps(result))
    cell = built(small, resolved_artifact("figure3a")).find("diff", "equal_loss_ratio")
    assert cell is not None and cell.value is not None and cell.n == 2
    assert cell.ci_low is None and cell.text.endswith(" (no interval)")


def test_equal_loss_out_of_range_is_flagged(small: FakeResults, tmp_path: Path) -> None:
    """DIFF's loss is below that of every measured Transformer."""
    small.all_results()
    losses = {
        "transformer": [power(x) for x in sizes(small, "transformer")],
        "diff": [power(x, 3.0) for x in sizes(small, "diff")],
    }
    set_losses(small, losses, noise=1e-6)
    build_table(resolved_artifact("figure3a"), small.results, tmp_path / "t")
    with (tmp_path / "t.csv").open() as file:
        cells = {(line["row"], line["column"]): line for line in csv.DictReader(file)}
    for column in ("equal_loss_x", "equal_loss_ratio"):
        assert (cells["diff", column]["value"], cells["diff", column]["n"]) == ("", "0")
        assert cells["diff", column]["ci_low"] == ""
    assert cells["diff", "equal_loss_out_of_range"]["value"] == "1.0"
    assert cells["diff_size_32", "point_equal_loss_out_of_range"]["value"] == "0.0"
    text = (tmp_path / "t.md").read_text()
    assert "beyond the measured range" in text


def test_a_curve_that_does_not_fall_has_no_equal_loss(small: FakeResults) -> None:
    small.all_results((0, 1))
    set_losses(small, {"transformer": [3.0, 3.1, 3.2, 3.3, 3.4]})
    artifact = resolved_artifact("figure3a", seeds=(0, 1))
    cell = built(small, artifact).find("diff", "equal_loss_ratio")
    assert cell is not None and (cell.value, cell.ci_low) == (None, None)
    assert cell.text == "none, the curve does not fall"
    unpublished = resolved_artifact("figure3a", "figure", seeds=(0, 1)).model_copy(
        update={"paper": None}
    )
    drawn = picture_of(unpublished, load_results(small.results, "tiny"), small)
    assert "equal loss" not in legend_of(drawn)


def test_the_legend_names_the_arrow_of_equal_loss(fake: FakeResults) -> None:
    assert "equal loss" in legend_of(picture("figure3a", fake))


def test_few_points_are_fitted_without_an_offset(small: FakeResults) -> None:
    small.all_results((0,))
    artifact = resolved_artifact("figure3a", seeds=(0,))
    part = artifact.sections[0]
    grid_rows = [
        grid_row.model_copy(update={"members": grid_row.members[1:]}) for grid_row in part.grid_rows
    ]
    part = part.model_copy(update={"grid_rows": grid_rows})
    table = built(small, artifact.model_copy(update={"sections": [part]}))
    assert value(table, "diff", "offset") == 0.0
    assert any("without an offset" in note for note in table.sections[1].notes)


def test_paired_differences_are_those_of_the_same_size(fake: FakeResults) -> None:
    table = built(fake, resolved_artifact("figure3a"))
    for run in SIZES:
        other = run.replace("transformer", "diff")
        ours, theirs = value(table, other, "loss"), value(table, run, "loss")
        assert ours is not None and theirs is not None
        assert value(table, other, "loss_difference") == pytest.approx(ours - theirs)
        assert table.sections[0].cell(run, "loss_difference") is None
    assert value(table, "diff", "loss_at_largest") == value(table, "diff_size_192", "loss")


@pytest.mark.parametrize("counted", ["one_embedding", "non_embedding", "total"])
def test_parameters_are_counted_as_set(counted: str, fake: FakeResults) -> None:
    result = load_results(fake.results, "tiny").training("diff_size_64", 0)
    expected = {
        "non_embedding": result.metrics["non_embedding_parameters"],
        "one_embedding": int(result.metrics["non_embedding_parameters"] or 0) + 1024 * 64,
        "total": result.metrics["parameters"],
    }
    assert parameters(result, counted) == expected[counted]


def test_points_by_tokens_are_parts_of_the_budget(fake: FakeResults) -> None:
    """There is a validation every 150,000 of 1.2M tokens: nine parts match eight of them."""
    table = built(fake, resolved_artifact("figure3b"))
    rows = [row.run for row in table.sections[0].rows]
    assert rows[:2] == ["transformer_more_tokens@150000", "diff_more_tokens@150000"]
    assert len(rows) == 16 and rows[-1] == "diff_more_tokens@1200000"
    series = load_results(fake.results, "tiny").histories.series(
        "diff_more_tokens", 1, "validation_loss"
    )
    cell = table.find("diff_more_tokens@600000", "loss")
    assert cell is not None and cell.by_seed()[1] == series.values[series.tokens.index(600_000)]


def test_one_validation_is_no_curve(small: FakeResults) -> None:
    small.all_results((0,))
    path = next(p for p in small.histories if "transformer_more_tokens" in str(p))
    rewrite(path, "step,tokens,validation_loss\n800,1200000,3.9\n")
    with pytest.raises(DataError, match=r"transformer_more_tokens.*got 1.*validate_every"):
        built(small, resolved_artifact("figure3b", seeds=(0,)))


def test_curves_with_different_numbers_of_points_are_refused(small: FakeResults) -> None:
    small.all_results((0,))
    path = next(p for p in small.histories if "diff_more_tokens" in str(p))
    rewrite(path, "step,tokens,validation_loss\n400,600000,4.0\n800,1200000,3.9\n")
    with pytest.raises(DataError, match=r"diff has 2 points and transformer 8.*rerun"):
        built(small, resolved_artifact("figure3b", seeds=(0,)))


def test_published_points_are_fitted_beside_what_the_paper_states(fake: FakeResults) -> None:
    for name, row, stated in (
        ("figure3a", "published_6_8b", 0.622),
        ("figure3a", "published_7_8b", 0.595),
        ("figure3b", "published_160b", 0.637),
    ):
        table = built(fake, resolved_artifact(name))
        cell = table.find(row, "equal_loss_ratio")
        assert cell is not None and cell.paper_value == stated
        assert cell.value == pytest.approx(stated, abs=0.01)
        assert not cell.job_ids()


def test_every_fitted_number_knows_all_jobs_behind_it(fake: FakeResults) -> None:
    table = built(fake, resolved_artifact("figure3a"))
    cell = table.find("diff", "equal_loss_ratio")
    assert cell is not None and cell.n == 3
    assert len(cell.job_ids()) == 2 * len(WIDTHS) * 3
    assert all(math.isfinite(seed.value or math.nan) for seed in cell.seeds)
    assert cell.ci_low is not None and cell.ci_high is not None and cell.value is not None
    assert cell.ci_low <= cell.value <= cell.ci_high
