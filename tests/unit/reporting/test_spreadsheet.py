"""Tables and verdicts as CSV: text is never a formula, and numbers stay numbers."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from answers import claims_on
from fake_configs import SCALE, artifact_resolver, facts
from fake_results import FakeResults

from difftransformer.reporting.formats.spreadsheet import to_csv
from difftransformer.reporting.table_job import build_table
from difftransformer.reporting.verdict_job import build_verdicts


@pytest.mark.parametrize(
    "text",
    [
        "=1+1", "+1+cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0", "@SUM(1)", "\t=1+1", "\r=1+1",
        "\n=1", " =1+1", "＝1+1", '=HYPERLINK("http://x","y")', "-diff", "-1;=2", "+", "- 1",
    ],
)  # fmt: skip
def test_a_text_that_would_be_calculated_stays_text(text: str) -> None:
    frame = pd.DataFrame({"row": [text], "value": [1]}, dtype=object)
    (_, (row, value)) = csv.reader(io.StringIO(to_csv(frame), newline=""))
    assert (row, value) == ("'" + text.replace("\r", "\n"), "1")


def test_a_carriage_return_begins_no_line() -> None:
    frame = pd.DataFrame({"row": ["diff\r=1+1"], "value": [1]}, dtype=object)
    assert to_csv(frame) == 'row,value\n"diff\n=1+1",1\n'


@pytest.mark.parametrize(
    "cell", [-1, -0.5, 1e-9, "-1", "+1.5e-3", "-0.25;;-3", "-inf;1", "", "diff", "a=b", "−0.1"]
)
def test_numbers_and_other_texts_stay_as_they_are(cell: object) -> None:
    frame = pd.DataFrame({"cell": [cell, None], "other": [1, 2.5]}, dtype=object)
    (_, (written, first_number), (missing, second_number)) = csv.reader(io.StringIO(to_csv(frame)))
    assert (written, first_number, missing, second_number) == (str(cell), "1", "", "2.5")


def test_a_table_and_its_verdicts_hold_no_formula(fake: FakeResults, tmp_path: Path) -> None:
    formula = '=HYPERLINK("http://127.0.0.1","open")'
    declared = replace(artifact_resolver(), overrides=lambda run: formula if run == "diff" else "")
    facts_by_run = {run: facts(run) for run in declared.labels}
    artifact = declared.resolve("table6", "table", scale=SCALE, seeds=(0, 1, 2), facts=facts_by_run)
    build_table(artifact, fake.results, tmp_path / "table6")
    tested = claims_on("evidence", not_testable={"V1.loss": formula})
    build_verdicts(tested, results=fake.results, output=tmp_path / "verdicts.json")
    for name, column in (("table6", "overrides"), ("verdicts", "reason")):
        with (tmp_path / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            values = {line[column] for line in csv.DictReader(file)}
        (text,) = (value for value in values if "HYPERLINK" in value)
        assert text.startswith(f"'{formula}")
