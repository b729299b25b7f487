import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from answers import claims_on
from fake_configs import RESOLVER, resolved_artifact
from fake_results import FakeResults
from test_formats import balanced

from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.errors import DataError
from difftransformer.reporting.comparison import (
    Build,
    classify_difference,
    compare,
    write_comparison,
)
from difftransformer.reporting.document import Cell, Column, Row, Section, SeedValue, TableDocument
from difftransformer.reporting.provenance_summary import ProvenanceSummary
from difftransformer.reporting.table_job import build_table
from difftransformer.reporting.verdict_job import build_verdicts

FULL_TABLE = resolved_artifact("table6")
ROWS = FULL_TABLE.sections[0].rows[:1] + [
    row for row in FULL_TABLE.sections[0].rows if row.run == "diff"
]
CLAIM = RESOLVER.registry.claims["V1.loss"].model_copy(update={"artifact": "table6"})
TABLE = FULL_TABLE.model_copy(
    update={"sections": [FULL_TABLE.sections[0].model_copy(update={"rows": ROWS})]}
)


def build(
    folder: Path, moved: float | None = 0.0, lr: float = 4e-3, rows: Sequence[ResolvedRow] = ROWS
) -> Path:
    """A build of table 6; the loss of DIFF is moved by so much, or has no value."""
    fake = FakeResults(folder)
    for row in rows:
        for seed in (0, 1, 2):
            fake.language_model(row.run, seed)
    for path in fake.results[:]:
        content = json.loads(path.read_text())
        if content["run"] == "diff" and content["kind"] == "training":
            fake.training("diff", content["seed"], content["metrics"], lr=lr)
        if content["run"] == "diff" and content["suite"]:
            loss = content["metrics"]["loss"]
            content["metrics"]["loss"] = None if moved is None else loss + moved
            fake.write(
                path, "evaluation", "diff", content["seed"], content["suite"], content["metrics"],
                content["settings"],
            )  # fmt: skip
    part = TABLE.sections[0].model_copy(update={"rows": rows})
    artifact = TABLE.model_copy(update={"sections": [part]})
    build_table(artifact, set(fake.results), folder / "tables" / "table6")
    return folder


def decided(folder: Path) -> Path:
    """The build with its verdict."""
    results = {
        path for part in ("runs", "evaluations") for path in folder.rglob(f"{part}/**/*.json")
    }
    tested = claims_on(claims={"V1.loss": CLAIM}, tables=[TABLE])
    build_verdicts(tested, results=results, output=folder / "verdicts.json")
    return folder


def test_verdicts_that_differ_are_shown(tmp_path: Path) -> None:
    first, second = build(tmp_path / "one"), build(tmp_path / "two", moved=-0.5)
    output = tmp_path / "compared.html"
    assert not write_comparison(first, decided(second), output).verdicts
    assert "Verdicts that differ" not in output.read_text()  # one has none
    (change,) = write_comparison(decided(first), second, output).verdicts
    assert change.a.claim == "V1.loss"
    assert [verdict.words for verdict in change] == [
        "opposite at this scale", "reproduced at this scale",
    ]  # fmt: skip
    html = output.read_text()
    balanced(html)
    assert "Verdicts that differ" in html and f"V1.loss: {CLAIM.question}" in html
    assert not write_comparison(first, first, output).verdicts


def test_changes_are_classified_as_within_or_beyond_noise(tmp_path: Path) -> None:
    first, second = build(tmp_path / "one"), build(tmp_path / "two", moved=0.5, lr=1e-3)
    near = build(tmp_path / "near", moved=0.001)
    output = tmp_path / "compared.html"
    far = write_comparison(first, second, output)
    beyond = {(c.row, c.column) for t in far.tables for c in t.cells if c.outcome == "beyond noise"}
    assert ("DIFF", "Valid ↓") in beyond and {row for row, _ in beyond} >= {"DIFF"}
    assert not [column for row, column in beyond if row == "DIFF" and "AR-Hit" in column]
    assert [tuple(setting) for setting in far.settings] == [("diff", "training.lr", 0.004, 0.001)]
    html = output.read_text()
    balanced(html)
    assert "beyond noise" in html and "training.lr" in html and "http" not in html
    close = write_comparison(first, near, output)
    assert close.counts["beyond noise"] == 0 < close.counts["within noise"]
    assert not close.settings
    same = write_comparison(first, first, output)
    assert {name for name, number in same.counts.items() if number} == {"same"}


def test_cells_and_verdicts_of_only_one_build_are_shown(tmp_path: Path) -> None:
    complete, output = decided(build(tmp_path / "whole")), tmp_path / "compared.html"
    without = build(tmp_path / "without", moved=None)
    comparison = write_comparison(complete, without, output)
    lost = [
        cell for table in comparison.tables for cell in table.cells if cell.outcome == "only in A"
    ]
    assert ("DIFF", "Valid ↓") in {(cell.row, cell.column) for cell in lost}
    assert all(cell.difference is None and cell.b and cell.b.text == "n/a" for cell in lost)
    assert comparison.counts["only in A"] == len(lost) and not comparison.counts["only in B"]
    assert comparison.only_a == {"verdict": ["V1.loss (opposite at this scale)"]}
    assert comparison.only_b == {}
    assert comparison.summary == (
        f"{len(lost)} only in A, {comparison.counts['same']} same; only in A: 1 verdict"
    )
    html = output.read_text()
    balanced(html)
    assert "only in A" in html and "V1.loss (opposite at this scale)" in html
    turned = write_comparison(without, complete, output)
    assert turned.counts["only in B"] == len(lost) and "only in B: 1 verdict" in turned.summary


def test_rows_and_runs_of_only_one_build_are_named(tmp_path: Path) -> None:
    complete, output = build(tmp_path / "whole"), tmp_path / "compared.html"
    fewer = build(tmp_path / "fewer", rows=ROWS[:1])
    comparison = write_comparison(fewer, complete, output)
    assert comparison.only_a == {} and comparison.only_b == {
        "row": ["DIFF (table6)"],
        "run": ["diff"],
    }
    assert comparison.summary.endswith(" same; only in B: 1 row, 1 run")
    html = output.read_text()
    balanced(html)
    assert "DIFF (table6)" in html and "Only in one build" in html
    same = write_comparison(complete, complete, output)
    assert same.summary == f"{same.counts['same']} same"
    assert "nly in" not in output.read_text()


def test_columns_sections_and_tables_of_only_one_build_are_shown() -> None:
    first, second = build_of(S=["a", "b"], T=["a"]), build_of(S=["a", "c"])
    comparison = compare(first, second)
    (table,) = comparison.tables
    assert [(cell.column, cell.outcome) for cell in table.cells] == [
        ("a", "same"), ("b", "only in A"), ("c", "only in B"),
    ]  # fmt: skip
    assert not comparison.only_a and not comparison.only_b
    more = second._replace(tables={**second.tables, "u": second.tables["t"]})
    assert compare(second, more).only_b == {"table": ["u"]}
    # A row is the same one in whichever section it stands.
    (table,) = compare(build_of(S=["a"], T=["a"], U=["b"]), build_of(V=["b"], S=["a"])).tables
    assert [(cell.column, cell.outcome) for cell in table.cells] == [("a", "same"), ("b", "same")]


def build_of(**columns: list[str]) -> Build:
    """A build of a table t: sections by their titles, of a row x and the columns."""

    def cell(column: str) -> Cell:
        seeds = [SeedValue(seed=0, value=1.0, text="1", job_ids=[])]
        return Cell(row="x", column=column, text="1", value=1.0, seeds=seeds)

    sections = [
        Section(
            title=title,
            columns=[Column(id=first, header=first) for first in ids],
            rows=[Row(run="x", label="X")],
            cells=[*map(cell, ids)],
        )
        for title, ids in columns.items()
    ]
    table = TableDocument(
        artifact="t", title="T", caption="", scale="tiny", seeds=[0], sections=sections
    )
    origins = ProvenanceSummary([], [], [], [], "", "")
    return Build("results/tiny", origins, {"t": table}, {}, {})


@pytest.mark.parametrize(
    ("values", "half", "outcome"),
    [
        ((1.0, 1.0), 0.1, "same"),
        ((1.0, 1.14), 0.1, "within noise"),
        ((1.0, 1.15), 0.1, "beyond noise"),
        ((1.0, 1.01), None, "without interval"),
    ],
)
def test_noise_counts_the_intervals_of_both_builds(
    values: tuple[float, float], half: float | None, outcome: str
) -> None:
    first, second = (
        Cell(
            row="a", column="b", text="", value=value,
            ci_low=None if half is None else value - half,
            ci_high=None if half is None else value + half,
        )
        for value in values
    )  # fmt: skip
    assert classify_difference(first, second)[1] == classify_difference(second, first)[1] == outcome


def test_a_folder_without_tables_cannot_be_compared(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no table; name the folder of a scale"):
        write_comparison(tmp_path, tmp_path, tmp_path / "out.html")
