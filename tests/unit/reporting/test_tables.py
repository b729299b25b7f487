import json
import shutil
from pathlib import Path

import pytest
from built_tables import read
from fake_configs import SCALE, resolved_artifact
from fake_rest import made_up, skipped
from fake_results import FakeResults, rewrite

from difftransformer.config.artifacts import ENDINGS
from difftransformer.errors import ConfigError, DataError, UserError
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import Cell, Section
from difftransformer.reporting.table_job import _require_one_value, build_table, make_table
from difftransformer.reporting.table_notes import corpus_note

GOLDEN = Path(__file__).with_name("golden")
TABLES = made_up("table")
SOME = TABLES[::5]


@pytest.mark.parametrize("name", [*TABLES, *skipped("table")])
def test_every_declared_table_is_built(name: str, fake: FakeResults, tmp_path: Path) -> None:
    made = build_table(resolved_artifact(name), fake.results, tmp_path / name)
    assert [path.suffix for path in made] == list(ENDINGS["table"])
    latex = made[ENDINGS["table"].index(".tex")].read_text()
    assert "{[}U+" not in latex, "a sign that LaTeX lacks"


@pytest.mark.parametrize("names", [SOME, pytest.param(TABLES, marks=pytest.mark.slow)], ids=len)
def test_tables_are_rebuilt_with_the_same_bytes(
    names: list[str], fake: FakeResults, tmp_path: Path
) -> None:
    for name in names:
        first = build_table(resolved_artifact(name), fake.results, tmp_path / "one" / name)
        second = build_table(
            resolved_artifact(name), fake.results[::-1], tmp_path / "two" / f"{name}.html"
        )
        assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


@pytest.mark.parametrize("name", ["table6", "table6_recall", "lr_sweep", "figure4"])
def test_csv_equals_the_golden_file(name: str, fake: FakeResults, tmp_path: Path) -> None:
    build_table(resolved_artifact(name), fake.results, tmp_path / name)
    cell, expected = read(tmp_path / f"{name}.csv"), read(GOLDEN / f"{name}.csv")
    assert list(cell) == list(expected)
    for key, line in expected.items():
        for column, text in line.items():
            try:
                assert float(cell[key][column]) == pytest.approx(float(text), rel=1e-12, abs=1e-12)
            except ValueError:
                assert cell[key][column] == text


def test_csv_keeps_numbers_exactly_with_their_jobs(fake: FakeResults, tmp_path: Path) -> None:
    build_table(resolved_artifact("table6"), fake.results, tmp_path / "table6")
    cell = read(tmp_path / "table6.csv")["diff", "valid"]
    results = [json.loads(path.read_text()) for path in fake.results]
    mine = [r for r in results if r["suite"] == "validation_slices" and r["run"] == "diff"]
    assert float(cell["value"]) == sum(r["metrics"]["loss"] for r in mine) / 3
    assert cell["run_ids"] == ";".join(sorted(r["job_id"] for r in mine))
    assert (cell["n"], cell["paper_value"]) == ("3", "3.062")
    assert float(cell["ci_low"]) < float(cell["value"]) < float(cell["ci_high"])


def test_published_values_are_marked_and_sourced(fake: FakeResults, tmp_path: Path) -> None:
    build_table(resolved_artifact("table6"), fake.results, tmp_path / "table6")
    for suffix in (".md", ".tex", ".html"):
        text = (tmp_path / f"table6{suffix}").read_text()
        assert "3.062" in text and "arXiv 2410.05258v2, table 6" in text
        assert "published at the paper's scale" in text.replace("&#39;", "'")
        assert "n = 2" in text and "at most 50 times" in text


@pytest.mark.parametrize(("name", "value"), [("table6", "3.062"), ("table9", "3072")])
def test_published_values_stand_in_cells_of_every_format(
    name: str, value: str, fake: FakeResults, tmp_path: Path
) -> None:
    build_table(resolved_artifact(name), fake.results, tmp_path / name)
    mark = "published value, at the paper&#39;s scale"
    html = (tmp_path / f"{name}.html").read_text().replace("'", "&#39;")
    assert f'<span class="published" title="{mark}">[{value}]</span>' in html
    assert f"[{value}]" in (tmp_path / f"{name}.md").read_text().replace("\\", "")
    assert f"[{value}]" in (tmp_path / f"{name}.tex").read_text()


@pytest.mark.parametrize("names", [SOME, pytest.param(TABLES, marks=pytest.mark.slow)], ids=len)
def test_one_seed_has_no_interval_and_says_so(
    names: list[str], fake: FakeResults, tmp_path: Path
) -> None:
    timed = {"table7", "v2_decoding", "dex_figure12"}  # their intervals are over processes
    for name in set(names) - timed:
        build_table(resolved_artifact(name, seeds=(0,)), fake.results, tmp_path / name)
        text = (tmp_path / f"{name}.md").read_text()
        assert "One seed (0): no interval." in text
        assert "±" not in text
        cells = read(tmp_path / f"{name}.csv").values()
        assert all(not cell["ci_low"] and not cell["std"] for cell in cells)


def test_a_missing_evaluation_fails_with_its_command_in_one_line(
    fake: FakeResults, tmp_path: Path
) -> None:
    remaining = [p for p in fake.results if not str(p).endswith("validation_slices/diff/1.json")]
    with pytest.raises(UserError) as error:
        build_table(resolved_artifact("table6"), remaining, tmp_path / "table6")
    line = str(error.value)
    assert "\n" not in line and "'diff' with seed 1" in line
    assert "snakemake results/tiny/evaluations/validation_slices/diff/1.json" in line
    assert not list(tmp_path.iterdir())


def test_a_missing_training_fails_with_its_command_in_one_line(
    fake: FakeResults, tmp_path: Path
) -> None:
    remaining = [p for p in fake.results if not str(p).endswith("runs/diff/1/training.json")]
    with pytest.raises(UserError, match=r"snakemake results/tiny/runs/diff/1/training\.json"):
        build_table(resolved_artifact("table6"), remaining, tmp_path / "table6")


def test_a_metric_that_was_not_measured_is_named(small: FakeResults, tmp_path: Path) -> None:
    small.all_results((0,))
    artifact = resolved_artifact("evidence", seeds=(0,))
    options = artifact.sections[0].options.model_copy(update={"metric": "lost"})
    parts = [artifact.sections[0].model_copy(update={"options": options})]
    with pytest.raises(UserError, match=r"suite 'validation_slices' of run transformer.*lost"):
        build_table(artifact.model_copy(update={"sections": parts}), small.results, tmp_path / "t")


def test_rows_measured_with_different_settings_do_not_share_a_table(
    small: FakeResults, tmp_path: Path
) -> None:
    small.all_results((0,))
    path = next(p for p in small.results if str(p).endswith("validation_slices/diff/0.json"))
    result = json.loads(path.read_text())
    result["settings"]["config"]["n"] = 3
    rewrite(path, json.dumps(result))
    with pytest.raises(UserError, match=r"config\.n is 2 in .* and 3 in .*rerun"):
        build_table(resolved_artifact("table6", seeds=(0,)), small.results, tmp_path / "t")


def test_results_of_another_scale_and_duplicates_are_refused(
    small: FakeResults, tmp_path: Path
) -> None:
    small.all_results((0,))
    twin = tmp_path / "twin.json"
    shutil.copy(small.results[0], twin)
    with pytest.raises(DataError, match="a second training result of run transformer, seed 0"):
        build_table(resolved_artifact("table6", seeds=(0,)), [*small.results, twin], tmp_path / "t")
    other = resolved_artifact("table6", seeds=(0,)).model_copy(update={"scale": "gpu"})
    with pytest.raises(UserError, match="of scale tiny, the artifact of scale gpu"):
        build_table(other, small.results, tmp_path / "t")


def test_differences_to_another_row_have_columns_of_their_own(fake: FakeResults) -> None:
    made = make_table(resolved_artifact("v2_loss"), load_results(fake.results, "tiny"))
    for ending, baseline in {"": "transformer_gqa", "_to_diff_gqa": "diff_gqa"}.items():
        cell = made.find("diff_v2", f"loss_100_difference{ending}")
        ours, theirs = (made.find(row, "loss_100") for row in ("diff_v2", baseline))
        assert cell is not None and ours is not None and theirs is not None
        assert cell.by_seed() == {
            seed: value - theirs.by_seed()[seed] for seed, value in ours.by_seed().items()
        }


def test_two_numbers_of_one_row_and_column_are_refused() -> None:
    first, second = (
        Section(title="", columns=[], rows=[], cells=[Cell(row="r", column="c", text="", value=x)])
        for x in (1.0, 2.0)
    )
    _require_one_value("table6", [first, first])
    with pytest.raises(ConfigError, match=r"table6\.yaml: sections: two .* 'c', 1.0 and 2"):
        _require_one_value("table6", [first, second])


def test_a_table_names_its_corpus(small: FakeResults) -> None:
    for run in ("transformer", "diff"):
        small.language_model(run, 0)
    results = load_results(small.results, SCALE)
    trained = results.trainings.values()
    assert corpus_note(trained) == []
    for index, training in enumerate(trained):
        training.settings["dataset"] = f"corpus_{index % 2}"
    assert corpus_note(trained) == ["Corpora: corpus_0, corpus_1."]
    assert corpus_note([*trained][:1]) == ["Corpus: corpus_0."]
