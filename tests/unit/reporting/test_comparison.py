import json
from pathlib import Path

import pytest
from fake_results import FakeResults
from fake_slices import SCALE, artifact_slice
from test_formats import balanced

from difftransformer.config.claims import VerdictsSlice
from difftransformer.errors import DataError
from difftransformer.reporting.comparison import judge, write_comparison
from difftransformer.reporting.document import Cell
from difftransformer.reporting.table_job import build_table
from difftransformer.reporting.verdict_job import build_verdicts

WHOLE = artifact_slice("table6")
ROWS = WHOLE.sections[0].rows[:1] + [row for row in WHOLE.sections[0].rows if row.run == "diff"]
CLAIM = WHOLE.claims["T6.1"].model_copy(update={"requires": []})  # of rows that are not here
SMALL = WHOLE.model_copy(
    update={
        "claims": {"T6.1": CLAIM},
        "sections": [WHOLE.sections[0].model_copy(update={"rows": ROWS})],
    }
)


def build(folder: Path, moved: float = 0.0, lr: float = 4e-3) -> Path:
    fake = FakeResults(folder)
    for row in ROWS:
        for seed in (0, 1, 2):
            fake.language_model(row.run, seed)
    for path in fake.results[:]:
        content = json.loads(path.read_text())
        if content["run"] == "diff" and content["kind"] == "training":
            fake.training("diff", content["seed"], content["metrics"], lr=lr)
        if content["run"] == "diff" and content["suite"]:
            content["metrics"]["loss"] += moved
            fake.write(
                path, "evaluation", "diff", content["seed"], content["suite"], content["metrics"],
                content["settings"],
            )  # fmt: skip
    build_table(SMALL, set(fake.results), folder / "tables" / "table6")
    return folder


def judged(folder: Path) -> Path:
    """The build with its verdict."""
    table = folder / "tables" / "table6.json"
    results = {
        path for part in ("runs", "evaluations") for path in folder.rglob(f"{part}/**/*.json")
    }
    build_verdicts(
        VerdictsSlice(scale=SCALE, claims=SMALL.claims), tables=[table], results=results,
        output=folder / "verdicts.json",
    )  # fmt: skip
    return folder


def test_verdicts_that_differ_are_shown(tmp_path: Path) -> None:
    one, two = build(tmp_path / "one"), build(tmp_path / "two", moved=-0.5)
    output = tmp_path / "compared.html"
    assert not write_comparison(one, judged(two), output).judged
    assert "Verdicts that differ" not in output.read_text()  # one has none
    (change,) = write_comparison(judged(one), two, output).judged
    assert change.kept.claim == "T6.1"
    assert (change.kept.verdict, change.other.verdict) == ("contradicted", "confirmed")
    html = output.read_text()
    balanced(html)
    assert "Verdicts that differ" in html and f"T6.1: {CLAIM.text}" in html
    assert not write_comparison(one, one, output).judged


def test_what_changed_is_within_noise_or_not(tmp_path: Path) -> None:
    one, two = build(tmp_path / "one"), build(tmp_path / "two", moved=0.5, lr=1e-3)
    near = build(tmp_path / "near", moved=0.001)
    output = tmp_path / "compared.html"
    far = write_comparison(one, two, output)
    beyond = {(c.row, c.column) for t in far.tables for c in t.cells if c.outcome == "beyond noise"}
    assert ("DIFF", "Valid ↓") in beyond and {row for row, _ in beyond} >= {"DIFF"}
    assert not [column for row, column in beyond if row == "DIFF" and "AR-Hit" in column]
    assert [(c.run, c.setting, c.kept, c.other) for c in far.changed] == [
        ("diff", "training.lr", 0.004, 0.001)
    ]
    html = output.read_text()
    balanced(html)
    assert "beyond noise" in html and "training.lr" in html and "http" not in html
    close = write_comparison(one, near, output)
    assert close.counts["beyond noise"] == 0 < close.counts["within noise"]
    assert not close.changed
    same = write_comparison(one, one, output)
    assert {name for name, number in same.counts.items() if number} == {"same"}


@pytest.mark.parametrize(
    ("values", "half", "outcome"),
    [
        ((1.0, 1.0), 0.1, "same"),
        ((1.0, 1.14), 0.1, "within noise"),
        ((1.0, 1.15), 0.1, "beyond noise"),
        ((1.0, 1.01), None, "without interval"),
    ],
)
def test_noise_is_of_both(values: tuple[float, float], half: float | None, outcome: str) -> None:
    one, two = (
        Cell(
            row="a", column="b", text="", value=value,
            ci_low=None if half is None else value - half,
            ci_high=None if half is None else value + half,
        )
        for value in values
    )  # fmt: skip
    assert judge(one, two)[1] == judge(two, one)[1] == outcome


def test_what_cannot_be_compared_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no table; name the folder of a scale"):
        write_comparison(tmp_path, tmp_path, tmp_path / "out.html")
