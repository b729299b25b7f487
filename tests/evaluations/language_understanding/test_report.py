"""Tables 1 and 8: cells, published rows, notes and the figure."""

import json

import pytest
from fake_configs import resolved_artifact
from fake_dex import DEX_TASKS
from fake_results import FakeResults
from fake_understanding import understanding
from pictures import changed, legend_of, numbers, picture_of

from difftransformer.errors import UserError
from difftransformer.evaluations.language_understanding.settings import Options
from difftransformer.evaluations.language_understanding.tasks import DIFF_TASKS
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.table_job import make_table


@pytest.mark.parametrize("excluded", [["gsmk"], ["wsc", "wsc"]])
def test_excluded_tasks_must_be_known_and_distinct(excluded: list[str]) -> None:
    with pytest.raises(ValueError, match=r"unknown task .gsmk.|wsc"):
        Options(excluded_tasks=excluded)


@pytest.mark.parametrize("excluded", [["wsc"], [*DIFF_TASKS]])
def test_excluded_tasks_must_be_some_of_the_evaluated_tasks(
    excluded: list[str], fake: FakeResults
) -> None:
    artifact = resolved_artifact("table8")
    wrong = artifact.sections[0].model_copy(update={"options": Options(excluded_tasks=excluded)})
    with pytest.raises(UserError, match=r"options.excluded_tasks: .* some of the"):
        make_table(
            artifact.model_copy(update={"sections": [wrong]}), load_results(fake.results, "tiny")
        )


@pytest.fixture(scope="module")
def table8(fake: FakeResults) -> TableDocument:
    return make_table(resolved_artifact("table8"), load_results(fake.results, "tiny"))


def test_a_cell_is_the_mean_in_percent_with_interval_and_standard_error(
    table8: TableDocument, fake: FakeResults
) -> None:
    cell = table8.find("diff", "piqa_5shot")
    results = [json.loads(path.read_text()) for path in fake.results]
    values = [
        100 * result["metrics"]["piqa"]
        for result in results
        if (result["run"], result["suite"]) == ("diff", "language_understanding_5shot")
    ]
    assert cell is not None and cell.value == pytest.approx(sum(values) / 3, rel=1e-12)
    assert cell.n == len(values) == 3 and cell.ci_low is not None
    assert cell.text.endswith(" (3.0)") and " ± " in cell.text
    assert (cell.paper_value, cell.paper_text) == (76.1, "76.1")
    error = table8.find("diff", "piqa_5shot_stderr")
    assert error is not None and error.value == pytest.approx(3.0)


def test_a_missing_standard_error_is_not_shown(fake: FakeResults) -> None:
    results = load_results(fake.results, "tiny")
    results = changed(results, "language_understanding_5shot", piqa_stderr=None)
    table = make_table(resolved_artifact("table8"), results)
    cell, error = (table.find("diff", f"piqa_5shot{part}") for part in ("", "_stderr"))
    assert cell is not None and " ± " in cell.text and not cell.text.endswith(")")
    assert error is not None and error.value is None
    picture_of(resolved_artifact("table8", "figure", (0,)), results, fake)


def test_other_published_models_and_guessing_get_rows(fake: FakeResults) -> None:
    table = make_table(resolved_artifact("table1"), load_results(fake.results, "tiny"))
    (section,) = table.sections
    assert [row.run for row in section.rows] == [
        "transformer", "diff", "open_llama_3b_v2", "stablelm_base_alpha_3b_v2",
        "stablelm_3b_4e1t", "guessing",
    ]  # fmt: skip
    published = section.cell("open_llama_3b_v2", "hellaswag_0shot")
    assert published is not None
    assert (published.value, published.paper_value, published.text) == (None, 70.0, "[70.0]")
    assert section.cell("stablelm_3b_4e1t", "average_0shot") is None
    guessing = section.cell("guessing", "boolq_0shot")
    assert guessing is not None and guessing.text == "50.0" and guessing.job_ids()


def test_notes_name_the_items_and_truncated_requests(table8: TableDocument) -> None:
    zero, five = (" ".join(section.notes) for section in table8.sections)
    assert "in the benchmarks' schemas, not the benchmarks" in zero
    assert "200 per task" in zero and "lose their first tokens" not in zero
    assert "lose their first tokens: 50% to 50%" in five


def test_rows_with_different_items_cannot_share_a_table(small: FakeResults) -> None:
    for run, data in (("transformer", "hub"), ("diff", "builtin")):
        small.language_model(run, 0)
        for shots in (0, 5):
            understanding(small, run, 0, shots, data)
    with pytest.raises(UserError, match=r"config\.data is hub in .* and builtin in"):
        make_table(resolved_artifact("table8", seeds=(0,)), load_results(small.results, "tiny"))


def test_panels_share_limits_that_contain_every_point(fake: FakeResults) -> None:
    results, shares = load_results(fake.results, "tiny"), {0: 0.2, 5: 0.9}
    for shots, share in shares.items():
        suite = f"language_understanding_{shots}shot"
        results = changed(results, suite, **dict.fromkeys([*DIFF_TASKS, "average"], share))
    figure = picture_of(resolved_artifact("table8", "figure"), results, fake)
    for axes, share in zip(figure.axes, shares.values(), strict=True):
        low, high = axes.get_ylim()
        ours = [line for line in axes.lines if 100 * share in line.get_ydata()]
        assert ours and -3 <= low < 100 * share < high <= 103


@pytest.mark.parametrize("data", ["builtin", "hub"])
def test_published_accuracies_are_drawn_only_for_the_benchmarks(
    data: str, fake: FakeResults
) -> None:
    results = changed(load_results(fake.results, "tiny"), "language_understanding_0shot", data)
    artifact = resolved_artifact("table1", "figure")
    figure = picture_of(artifact, results, fake)
    (axes,) = figure.axes
    hollow = {y for line in axes.lines if line.get_mfc() == "white" for y in numbers(line)}
    named = [label for label in legend_of(figure) if "published" in label]
    if data == "hub":
        assert artifact.paper is not None
        published = {value for row in artifact.paper.rows.values() for value in row.values.values()}
        assert hollow == published - {None} and named and "proxy" not in axes.get_title("left")
    else:
        assert not hollow and not named
        assert axes.get_title("left").endswith("(synthetic proxy: a few items of our own)")


def test_an_external_model_has_a_single_value_for_all_seeds(small: FakeResults) -> None:
    for seed in (0, 1, 2):
        for run in ("transformer", "diff"):
            small.language_model(run, seed)
            understanding(small, run, seed, 0)
    understanding(small, "elsewhere", 0, 0)
    artifact = resolved_artifact("table1")
    (part,) = artifact.sections
    row = part.rows[0].model_copy(update={"run": "elsewhere", "label": "E", "pretrained": True})
    part = part.model_copy(update={"rows": [row, *part.rows]})
    artifact = artifact.model_copy(update={"sections": [part]})
    table = make_table(artifact, load_results(small.results, "tiny"))
    cell = table.find("elsewhere", "average_0shot")
    assert cell is not None and cell.n == 1 and cell.ci_low is None
    assert " ± " not in cell.text and cell.text.endswith("(3.0)")
    notes = " ".join(table.sections[0].notes)
    assert "Pretrained models have one value for all seeds." in notes
    figure = picture_of(artifact, load_results(small.results, "tiny"), small)
    bars = [line.get_ydata() for line in figure.axes[0].lines if line.get_linewidth() == 1.6]
    reach = 1.96 * 3.0  # of its standard errors over items
    assert any(list(bar) == pytest.approx([cell.value - reach, cell.value + reach]) for bar in bars)
    assert legend_of(figure)[0] == "E"


def test_tables_of_dex_exclude_wsc_and_name_constant_predictions(fake: FakeResults) -> None:
    results = load_results(fake.results, "tiny")
    (section,) = make_table(resolved_artifact("dex_table1"), results).sections
    full, subset = (section.cell("adapted_dex", f"average{part}_0shot") for part in ("", "_subset"))
    tasks = [task for task in DEX_TASKS if task != "wsc"]
    cells = [section.cell("adapted_dex", f"{task}_0shot") for task in tasks]
    values = [cell.value for cell in cells if cell is not None and cell.value is not None]
    assert full is not None and subset is not None and len(values) == 10
    assert subset.value == pytest.approx(sum(values) / 10)
    assert section.cell("adapted_dex", "average_subset_0shot_difference") is not None
    column_ids = [column.id for column in section.columns if not column.csv_only]
    assert [id for id in column_ids if "most_common" in id] == ["wsc_most_common_share_0shot"]
    (note,) = (note for note in section.notes if note.startswith("Same answer to at least 95%"))
    assert note.count("WSC:") == 1 and "Dex" in note and "COPA" not in note


def test_a_skipped_task_is_blank_with_its_published_value(fake: FakeResults) -> None:
    table = make_table(resolved_artifact("dex_table7"), load_results(fake.results, "tiny"))
    section = table.sections[1]
    blank, average = (section.cell("adapted_tuned_dex", name) for name in ("mbpp_plus", "average"))
    assert blank is not None and (blank.value, blank.text, blank.paper_value) == (None, "", 64.8)
    assert average is not None and average.value is not None and average.paper_value is None
    headers = {column.id: column.header for column in section.columns}
    assert headers["average"] == "Avg of 5 ↑" and headers["mbpp_plus"] == "MBPP+ ↑"
    assert section.cell("guessing", "mbpp_plus") is None
    (note,) = (note for note in section.notes if note.startswith("Not evaluated"))
    assert "run_generated_code: true" in note
    scored = section.cell("adapted_tuned_dex", "ifeval")
    assert scored is not None and scored.paper_value == 57.2
