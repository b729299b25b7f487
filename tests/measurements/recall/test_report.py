"""The rows of table 6 on retrieval, from results with known times."""

import csv
from pathlib import Path

from fake_results import FakeResults
from fake_slices import artifact_slice

from difftransformer.reporting.table_job import build_table


def read(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return {(line["row"], line["column"]): line for line in csv.DictReader(file)}


def test_recall_says_who_binds_and_what_is_censored(fake: FakeResults, tmp_path: Path) -> None:
    build_table(artifact_slice("table6_recall"), fake.results, tmp_path / "recall")
    cells = read(tmp_path / "recall.csv")
    assert cells["recall_transformer", "bound"]["value"] == "0.0"
    assert cells["recall_transformer", "steps_to_bind"]["value"] == ""
    assert cells["recall_transformer", "steps_to_bind_censored"]["value"] == "3.0"
    assert cells["recall_diff", "bound"]["value"] == "1.0"
    text = (tmp_path / "recall.md").read_text()
    assert "0/3 (0.00 to 0.56)" in text and "> 800; 3 of 3 censored" in text.replace("\\", "")
