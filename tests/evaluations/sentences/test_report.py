"""Figures 4 and 18 of Dex, from synthetic results."""

import csv
from pathlib import Path

import pytest
from fake_configs import SCALE, resolved_artifact
from fake_results import FakeResults
from pictures import picture_of

from difftransformer.evaluations.sentences.sentences import SENTENCES
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.table_job import build_table


def test_the_table_quotes_the_sentences_it_shows(fake: FakeResults, tmp_path: Path) -> None:
    build_table(resolved_artifact("dex_figure18"), fake.results, tmp_path / "t")
    with (tmp_path / "t.csv").open(encoding="utf-8") as file:
        cells = {(line["row"], line["column"]): line for line in csv.DictReader(file)}
    assert float(cells["diff", "object_2_distractor_lowest"]["value"]) == pytest.approx(-0.2)
    assert not any(column.startswith("object_1") for _, column in cells)
    text = (tmp_path / "t.md").read_text()
    assert SENTENCES["object_2"].text in text and SENTENCES["object_1"].text not in text


def test_every_head_is_a_line_and_marked_words_are_bold(fake: FakeResults) -> None:
    results = load_results(fake.results, SCALE)
    drawn = picture_of(resolved_artifact("dex_figure4", "figure"), results, fake)
    pictures = [axes for axes in drawn.axes if axes.images and axes.get_title(loc="left")]
    assert len(pictures) == 4  # two rows, two sentences
    assert pictures[0].images[0].get_array().shape == (8, 5)
    bold = [
        tick.get_text()
        for tick in pictures[-1].get_xticklabels()
        if tick.get_fontweight() == "bold"
    ]
    assert bold == ["one", "three"]
