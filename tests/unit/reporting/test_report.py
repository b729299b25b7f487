import json
import re
import shutil
from pathlib import Path

import pytest
from fake_results import FakeResults
from fake_slices import SCALE, artifact_slice, declarations
from test_formats import balanced

from difftransformer.config.artifact_slices import ReportSlice
from difftransformer.config.claims import VerdictsSlice
from difftransformer.config.papers import ItemStatus, PaperStatus
from difftransformer.errors import DataError, UserError
from difftransformer.reporting.origins import duration
from difftransformer.reporting.report_job import build_report
from difftransformer.reporting.table_job import build_table
from difftransformer.reporting.verdict_job import build_verdicts

CONTENTS = [
    PaperStatus(
        title="A paper",
        source="somewhere",
        items=[
            ItemStatus(item="Table 6", shows="Ablations", artifact="table6", states=["built here"]),
            ItemStatus(
                item="Table 7", shows="Speed", artifact="table7", states=["not in this report"],
                words="Build it with <it>.",
            ),
        ],
    )
]  # fmt: skip


def report_slice(*tables: str, figures: tuple[str, ...] = ()) -> ReportSlice:
    return ReportSlice(
        scale=SCALE,
        scale_description="Small & honest",
        seeds=[0, 1, 2],
        contents=CONTENTS,
        tables=[artifact_slice(name) for name in tables],
        figures=[artifact_slice(name, "figure") for name in figures],
        commands={"Build it again": "snakemake --config scale=tiny 'seeds=[0,1,2]'"},
    )


@pytest.fixture(scope="module")
def built(fake: FakeResults, drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    for name in ("table6", "ablation_group_norm", "lr_sweep"):
        build_table(artifact_slice(name), fake.results, folder / name)
    for name in ("table6.svg", "table6.sha256.json"):
        shutil.copy(drawn / name, folder)
    tables = [folder / f"{name}.json" for name in ("table6", "ablation_group_norm")]
    asked = VerdictsSlice(scale=SCALE, claims=artifact_slice("ablation_group_norm").claims)
    asked.claims.update(artifact_slice("table6").claims)
    judged = folder / "judged" / "verdicts.json"
    build_verdicts(asked, tables=tables, results=fake.results, output=judged)
    return folder


def build(built: Path, fake: FakeResults, output: Path, *tables: str) -> str:
    build_report(
        report_slice(*tables, figures=("table6",)),
        tables=[path for path in sorted(built.glob("*.json")) if path.suffixes == [".json"]],
        figures=[built / "table6.svg"],
        verdicts=built / "judged" / "verdicts.json",
        results=fake.results,
        output=output,
    )
    return output.read_text()


def test_the_page_is_whole_self_contained_and_the_same_again(
    built: Path, fake: FakeResults, tmp_path: Path
) -> None:
    names = ("table6", "ablation_group_norm", "lr_sweep")
    html = build(built, fake, tmp_path / "a" / "index.html", *names)
    assert html == build(built, fake, tmp_path / "b.html", *names)
    parser = balanced(html)
    assert not {"script", "link", "iframe"} & parser.names
    assert not re.search(r"https?://", html)
    assert all(source.startswith("data:") for source in re.findall(r'src="([^"]*)', html))
    assert set(re.findall(r'href="#([^"]*)', html)) <= set(parser.ids)
    assert all(alt for alt in re.findall(r'<img [^>]*alt="([^"]*)', html))


def test_every_number_leads_to_its_job(built: Path, fake: FakeResults, tmp_path: Path) -> None:
    html = build(built, fake, tmp_path / "index.html", "table6")
    for path in fake.results:
        result = json.loads(path.read_text())
        if result["run"] == "diff" and result["suite"] in (None, "validation_slices"):
            assert f'href="#job-{result["job_id"]}"' in html
            assert f'id="job-{result["job_id"]}"' in html
            assert result["provenance"]["fingerprint"] in html


def test_a_board_of_verdicts_stands_on_top_and_each_leads_to_its_artifact(
    built: Path, fake: FakeResults, tmp_path: Path
) -> None:
    html = build(built, fake, tmp_path / "index.html", "ablation_group_norm", "table6")
    top = html[html.index('id="verdicts"') : html.index('id="ablation_group_norm"')]
    assert "10 claims at scale tiny" in top and "the other way" in top
    assert len(re.findall(r'<a href="#table6">T6\.\d</a>', top)) == 7
    below = html[html.index('id="table6"') :]
    assert len(re.findall("<strong>T6.1</strong>", below)) == 1
    declared = declarations().claim("T6.1").declared
    assert f"declared {declared.date}" in below


def test_each_table_of_the_paper_has_its_status(
    built: Path, fake: FakeResults, tmp_path: Path
) -> None:
    html = build(built, fake, tmp_path / "index.html", "table6")
    assert '<a href="#table6">Table 6</a>' in html and 'href="#table7"' not in html
    assert "not in this report" in html and "Build it with &lt;it&gt;." in html


def test_data_are_escaped(built: Path, fake: FakeResults, tmp_path: Path) -> None:
    html = build(built, fake, tmp_path / "index.html", "table6")
    assert "A &lt;CPU&gt; &amp; more" in html and "A <CPU>" not in html
    assert "Small &amp; honest" in html


def test_the_sweep_stands_where_it_is_asked_for(
    built: Path, fake: FakeResults, tmp_path: Path
) -> None:
    html = build(built, fake, tmp_path / "index.html", "table6")
    assert "is the best of the sweep" not in html
    html = build(built, fake, tmp_path / "index.html", "table6", "lr_sweep")
    assert "is the best of the sweep" in html


def test_the_caption_of_a_figure_explains_its_marks(
    built: Path, drawn: Path, fake: FakeResults, tmp_path: Path
) -> None:
    build_report(
        report_slice(figures=("v2_sinks", "table6")),
        tables=[], figures=[drawn / "v2_sinks.svg", drawn / "table6.svg"], results=fake.results,
        verdicts=built / "judged" / "verdicts.json", output=tmp_path / "index.html",
    )  # fmt: skip
    html = (tmp_path / "index.html").read_text()
    marked, plain = re.findall(r"<figcaption>(.*?)</figcaption>", html, re.DOTALL)
    assert "* An interpretation" in marked and "DINT: causal form" in marked
    assert "interpretation" not in plain


def test_what_is_missing_is_named(built: Path, fake: FakeResults, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"table 'table6_recall', which was not given.*snakemake"):
        build(built, fake, tmp_path / "index.html", "table6_recall")
    kept = [p for p in fake.results if not str(p).endswith("validation_slices/diff/1.json")]
    with pytest.raises(UserError, match="table 'table6' shows the job evaluation-diff-"):
        build_report(
            report_slice("table6"), tables=[built / "table6.json"], figures=[], results=kept,
            verdicts=built / "judged" / "verdicts.json", output=tmp_path / "index.html",
        )  # fmt: skip
    (tmp_path / "table6.json").write_text('{"artifact": "table6"')
    with pytest.raises(DataError, match="not a whole table"):
        build_report(
            report_slice("table6"), tables=[tmp_path / "table6.json"], figures=[],
            verdicts=built / "judged" / "verdicts.json", results=fake.results,
            output=tmp_path / "index.html",
        )  # fmt: skip
    assert not (tmp_path / "index.html").exists()


def test_durations() -> None:
    assert [duration(s) for s in (3.21, 90, 3599.7, 7260)] == [
        "3.2 s", "1 min 30 s", "1 h 0 min", "2 h 1 min",
    ]  # fmt: skip
