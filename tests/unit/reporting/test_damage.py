"""Files that differ from their recorded checksum are refused with a one-line error."""

from collections.abc import Callable
from pathlib import Path

import pytest
from answers import claims_on
from fake_configs import resolved_artifact
from fake_results import FakeResults
from fake_site import report_config
from spoiling import zeroed

from difftransformer.errors import DataError
from difftransformer.reporting.figure_job import build_figure
from difftransformer.reporting.report_job import build_report
from difftransformer.reporting.table_job import build_table
from difftransformer.reporting.verdict_job import build_verdicts

Build = Callable[[FakeResults, Path], object]


def table(name: str) -> Build:
    artifact = resolved_artifact(name, seeds=(0,))
    return lambda fake, output: build_table(artifact, fake.results, output / name)


def figure(name: str) -> Build:
    artifact = resolved_artifact(name, "figure", seeds=(0,))
    return lambda fake, output: build_figure(artifact, fake.results, output / name)


def report(fake: FakeResults, output: Path) -> None:
    build_report(
        report_config(["table6"], ["table6"]),
        tables=[fake.root / "table6.json"],
        figures=[fake.root / "table6.svg"],
        verdicts=fake.root / "verdicts.json",
        results=fake.results,
        output=output / "index.html",
    )


def decide(fake: FakeResults) -> None:
    tested, output = claims_on("evidence", seeds=(0,)), fake.root / "verdicts.json"
    build_verdicts(tested, results=fake.results, output=output)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("runs/diff/0/history.csv", figure("table6")),
        ("runs/transformer_more_tokens/0/history.csv", table("figure3b")),
        ("evaluations/attention_allocation/recall_diff/0/example_rows.npy", figure("figure1")),
        ("evaluations/attention_allocation/recall_diff/0/example.json", figure("figure1")),
        ("evaluations/outliers/diff/0/histograms.json", figure("table5")),
        ("table6.svg", report),
    ],
)
def test_a_damaged_file_shows_no_number(
    name: str, build: Build, small: FakeResults, tmp_path: Path
) -> None:
    small.all_results((0,))
    table("table6")(small, small.root)
    figure("table6")(small, small.root)
    decide(small)
    zeroed(small.root / name)
    with pytest.raises(DataError) as error:
        build(small, tmp_path / "new")
    text = str(error.value)
    assert text.startswith(f"{small.root / name}: checksum mismatch; delete ")
    assert "\n" not in text and "snakemake" in text
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "name", ["table6.json", "verdicts.json", "evaluations/validation_slices/diff/0.json"]
)
def test_a_changed_number_is_refused(name: str, small: FakeResults, tmp_path: Path) -> None:
    small.all_results((0,))
    table("table6")(small, small.root)
    figure("table6")(small, small.root)
    decide(small)
    path = small.root / name
    path.write_text(path.read_text().replace("3.", "2.", 1))
    with pytest.raises(DataError, match=f"{name}: checksum mismatch"):
        report(small, tmp_path / "new")
    assert not (tmp_path / "new").exists()
