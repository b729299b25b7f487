"""Table 3 and figure 1, from synthetic results with known shares."""

from pathlib import Path

import pytest
from built_tables import metrics, read
from fake_configs import resolved_artifact
from fake_results import FakeResults
from pictures import picture

from difftransformer.errors import UserError
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.figure_job import build_figure
from difftransformer.reporting.section_context import SectionContext, get_prompt_maps
from difftransformer.reporting.table_job import build_table


def test_table_3_has_answer_and_noise_by_depth(fake: FakeResults, tmp_path: Path) -> None:
    build_table(resolved_artifact("table3"), fake.results, tmp_path / "table3")
    cells = read(tmp_path / "table3.csv")
    for run in ("recall_transformer", "recall_diff"):
        results = metrics(fake, "attention_allocation", run)
        for column in ("answer_d75", "noise_d0", "answer", "noise", "bos", "query"):
            mean = sum(result[column] for result in results) / 3
            assert float(cells[run, column]["value"]) == pytest.approx(mean)
    assert cells["recall_diff", "answer_d100"]["paper_value"] == "0.4"
    parts = [float(cells["recall_diff", name]["value"]) for name in ("bos", "answer", "query")]
    assert sum(parts) + float(cells["recall_diff", "noise"]["value"]) == pytest.approx(1)
    text = (tmp_path / "table3.md").read_text()
    assert "absolute weights, divided by their sum" in text
    both = [["", "answer_signed_d50", "answer_l1"], ["_signed", "noise_signed_l0", "answer_d50"]]
    results = metrics(fake, "attention_allocation", "recall_diff")
    for ending, *columns in both:
        assert "| Answer all, " + ("signed" if ending else "absolute") in text
        for column in (f"answer{ending}", *columns):
            mean = sum(result[column] for result in results) / 3
            assert float(cells["recall_diff", column]["value"]) == pytest.approx(mean)
    assert cells["recall_diff", "answer_signed_d50"]["paper_value"] == ""
    printed = text.split("\n\n")[3]
    assert "noise all, signed" in printed.lower() and "layer" not in printed
    assert "(synthetic proxy: keys and values of synthetic tokens)" in text


def test_the_answers_share_is_drawn_by_layer_under_both_normalizations(fake: FakeResults) -> None:
    figure = picture("figure1", fake)
    panels = {axes.get_title("left"): axes for axes in figure.axes}
    results = metrics(fake, "attention_allocation", "recall_diff")
    for title, sign in (("Answer, absolute", ""), ("Answer, signed", "_signed")):
        curves = [line for line in panels[title].lines if len(line.get_xdata())]
        expected = [
            sum(result[f"answer{sign}_l{layer}"] for result in results) / 3 for layer in (0, 1)
        ]
        assert any(list(line.get_ydata()) == pytest.approx(expected) for line in curves)
        assert {tuple(line.get_xdata()) for line in curves} == {(1, 2)}
    absolute, signed = (panels[f"Answer, {name}"].get_ylim() for name in ("absolute", "signed"))
    assert absolute == signed


def test_the_report_has_the_maps_of_the_example_prompt(fake: FakeResults) -> None:
    artifact, results = resolved_artifact("table3"), load_results(fake.results, "tiny")
    attention, needles = (SectionContext(artifact, part, results) for part in artifact.sections)
    maps = get_prompt_maps(attention)
    assert [m.run for m in maps] == [row.run for row in attention.rows]
    assert {m.prompt for m in maps} == {"6 needles, one queried"}
    assert [m.weights.shape for m in maps] == [(2, heads, 20, 20) for heads in (4, 2, 2)]
    assert get_prompt_maps(needles) == []


def test_an_example_that_is_not_there_is_named(small: FakeResults, tmp_path: Path) -> None:
    small.all_results((0,))
    (small.root / "evaluations/attention_allocation/recall_diff/0/example.json").unlink()
    with pytest.raises(UserError, match=r"no example\.json of evaluation 'attention_allocation'"):
        build_figure(resolved_artifact("figure1", "figure", (0,)), small.results, tmp_path / "f")
