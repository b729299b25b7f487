import json
import re
from pathlib import Path
from typing import Any

import pytest
from answers import claims_on
from fake_configs import RESOLVER, resolved_artifact
from fake_results import FakeResults
from fake_site import report_config
from test_formats import balanced

from difftransformer.config.papers import ItemStatus, PaperStatus
from difftransformer.config.resolved_artifacts import EarlierArtifact, ReportConfig
from difftransformer.errors import DataError, UserError
from difftransformer.reporting.drawing import style_indices
from difftransformer.reporting.figure_job import build_figure
from difftransformer.reporting.formats.html import anchor
from difftransformer.reporting.provenance_summary import format_duration
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
                note="Build it with <it>.",
            ),
        ],
    )
]  # fmt: skip


@pytest.fixture(scope="module")
def built(fake: FakeResults, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    for name in ("table6", "ablation_group_norm", "lr_sweep", "evidence", "v2_loss"):
        build_table(resolved_artifact(name), fake.results, folder / name)
    for name in ("table6", "v2_sinks"):
        build_figure(resolved_artifact(name, "figure"), fake.results, folder / name)
    verdicts = folder / "decided" / "verdicts.json"
    build_verdicts(claims_on("evidence", "v2_loss"), results=fake.results, output=verdicts)
    return folder


def build(
    built: Path, fake: FakeResults, output: Path, *tables: str, **changes: Any
) -> dict[str, str]:
    """Pages and data of a report, by their names."""
    slice = report_config(tables, ["table6"]).model_copy(update={"contents": CONTENTS} | changes)
    return write(slice, built, fake, output)


def write(slice: ReportConfig, built: Path, fake: FakeResults, output: Path) -> dict[str, str]:
    remaining = {item.artifact for item in slice.earlier}
    build_report(
        slice,
        tables=[
            path
            for path in sorted(built.glob("*.json"))
            if path.suffixes == [".json"] and path.stem not in remaining
        ],
        figures=[built / "table6.svg"],
        verdicts=built / "decided" / "verdicts.json",
        results=fake.results,
        output=output,
    )
    files = (
        path for path in output.parent.rglob("*") if path.suffix in (".html", ".js", ".css", ".svg")
    )
    return {path.relative_to(output.parent).as_posix(): path.read_text() for path in files}


def test_the_site_is_complete_and_reproducible(
    built: Path, fake: FakeResults, tmp_path: Path
) -> None:
    names = ("table6", "ablation_group_norm", "lr_sweep")
    site = build(built, fake, tmp_path / "a" / "index.html", *names)
    assert site == build(built, fake, tmp_path / "b" / "index.html", *names)
    assert {f"{name}.html" for name in (*names, "index", "runs", "single-page")} < site.keys()
    for name, html in site.items():
        if not name.endswith(".html"):
            continue
        parser = balanced(html)
        assert not {"iframe", "object", "embed"} & parser.names
        assert len(parser.ids) == len(set(parser.ids)), name
        for link in re.findall(r'(?:src|href)="([^"]*)"', html):
            page, _, anchor = link.partition("#")
            assert not re.match(r"\w+:(?!image/svg)|//|/", link.removeprefix("data:")), link
            if link.startswith("data:"):
                continue
            assert not page or (tmp_path / "a" / page).is_file(), f"{name}: {link}"
            target = site[page] if page else html
            assert not anchor or f'id="{anchor}"' in target, f"{name}: {link}"
        assert all(re.findall(r'<img [^>]*alt="([^"]*)', html))


def test_the_single_page_is_self_contained(built: Path, fake: FakeResults, tmp_path: Path) -> None:
    site = build(built, fake, tmp_path / "index.html", "table6", "lr_sweep")
    single_page = site["single-page.html"]
    assert "<link" not in single_page and not re.search(r"<script[^>]* src", single_page)
    assert all(item.startswith("data:") for item in re.findall(r'src="([^"]*)', single_page))
    assert all(text in single_page for name, text in site.items() if name.startswith("data/"))


def test_dots_of_rows_have_the_colors_of_a_figure_of_them(
    built: Path, fake: FakeResults, tmp_path: Path
) -> None:
    slice = report_config(["table6"], ["table6"])
    alike = {run: item.model_copy(update={"color": 1}) for run, item in slice.runs.items()}
    site = build(built, fake, tmp_path / "index.html", "table6", runs=alike)
    dots = re.findall(r'title="run (\w+)"><span class="dot c(\d)"', site["table6.html"])
    numbers = style_indices({row.run: 1 for row in slice.tables[0].sections[0].rows})
    assert dots == [(run, str(number % 7)) for run, number in numbers.items()]


def test_every_number_leads_to_its_job(built: Path, fake: FakeResults, tmp_path: Path) -> None:
    site = build(built, fake, tmp_path / "index.html", "table6")
    jobs = read(site["data/jobs.js"])["jobs"]
    (section,) = read(site["data/table-table6.js"])
    named = {
        job for cell in section["cells"].values() for _, _, ids in cell["seeds"] for job in ids
    }
    assert named <= jobs.keys()
    opened = set(re.findall(r'data-cell="([^"]*)"', site["table6.html"]))
    assert opened == section["cells"].keys()
    for path in fake.results:
        result = json.loads(path.read_text())
        if result["run"] == "diff" and result["suite"] in (None, "validation_slices"):
            assert result["job_id"] in named
            assert result["provenance"]["fingerprint"] in jobs[result["job_id"]]
            assert path.as_posix().endswith(f"/{jobs[result['job_id']][-1]}")


def read(script: str) -> Any:
    return json.loads(script[script.index(" = ") + 3 :].rstrip(";\n"))


def test_scripts_read_all_that_is_written_for_them(
    built: Path, fake: FakeResults, tmp_path: Path
) -> None:
    site = build(built, fake, tmp_path / "index.html", "table6")
    (section,) = read(site["data/table-table6.js"])
    cell, run = (
        next(iter(item.values())) for item in (section["cells"], read(site["data/runs.js"]))
    )
    for script, groups in {
        "panel": (section, cell, read(site["data/jobs.js"]), read(site["data/site.js"])),
        "runs": (run, run["facts"], read(site["data/settings.js"]), *run["curves"].values()),
    }.items():
        for name in {name for group in groups for name in group}:
            assert re.search(rf"\.{name}\b", site[f"assets/{script}.js"]), (script, name)


def test_questions_come_first_and_link_to_their_verdicts(
    built: Path, fake: FakeResults, tmp_path: Path
) -> None:
    site = build(built, fake, tmp_path / "index.html", "evidence", "v2_loss")
    front, claims = site["index.html"], RESOLVER.registry.claims
    names = [name for name, item in claims.items() if item.artifact in ("evidence", "v2_loss")]
    primary = [name for name in names if claims[name].endpoint == "primary"]
    assert front.count("<li data-verdict=") == len(primary) == 2
    assert front.count("<tr data-verdict=") == len(names) - len(primary) > 0
    assert "5 registered claims at scale tiny" in front and "opposite at this scale" in front
    for name in names:
        claim, anchor_id = claims[name], f"claim-{anchor(name)}"
        page = site[f"{claim.artifact}.html"]
        assert front.count(f'href="{claim.artifact}.html#{anchor_id}"') == 1
        assert page.count(f'id="{anchor_id}"') == page.count(f"<strong>{name}</strong>") == 1
        assert claim.question.replace("'", "&#39;") in front and claim.digest in page


def test_a_report_without_an_answer_says_so(built: Path, fake: FakeResults, tmp_path: Path) -> None:
    front = build(built, fake, tmp_path / "index.html", "table6")["index.html"]
    assert "No built table tests a registered claim." in front


def test_each_table_of_the_paper_has_its_status(
    built: Path, fake: FakeResults, tmp_path: Path
) -> None:
    html = build(built, fake, tmp_path / "index.html", "table6")["index.html"]
    assert '<a href="table6.html">Table 6</a>' in html and 'href="table7' not in html
    assert "not in this report" in html and "Build it with &lt;it&gt;." in html


def test_the_page_of_runs_names_the_text_that_its_losses_are_of(
    built: Path, fake: FakeResults, tmp_path: Path
) -> None:
    page = build(built, fake, tmp_path)["runs.html"]
    assert "the first 16.4K tokens of the held-out text" in page


def test_data_are_escaped(built: Path, fake: FakeResults, tmp_path: Path) -> None:
    about = {"scale_description": "</script><b>Small & honest"}
    site = build(built, fake, tmp_path / "index.html", "table6", **about)
    assert "A &lt;CPU&gt; &amp; more" in site["index.html"]
    assert "A \\u003cCPU> & more" in site["data/jobs.js"]
    assert not [name for name, text in site.items() if "A <CPU>" in text or "<b>Small" in text]


def test_the_sweep_is_only_on_its_own_page(built: Path, fake: FakeResults, tmp_path: Path) -> None:
    site = build(built, fake, tmp_path / "index.html", "table6", "lr_sweep")
    assert "best mean" in site["lr_sweep.html"]
    assert "best mean" not in site["table6.html"]


def test_artifacts_of_earlier_builds_stay_in_the_report(
    built: Path, fake: FakeResults, tmp_path: Path
) -> None:
    earlier = EarlierArtifact(
        artifact="lr_sweep",
        table=str(built / "lr_sweep.json"),
        results=[str(path) for path in fake.results if "sweep" in str(path)],
    )
    output = tmp_path / "index.html"
    site = build(built, fake, output, "table6", "lr_sweep", earlier=[earlier])
    assert "from an earlier build" in site["index.html"]
    assert "From an earlier build" in site["lr_sweep.html"]
    assert "earlier build" not in site["table6.html"]
    # It stops nothing: what cannot be read any more is left out, a result that is gone is said.
    lost = earlier.model_copy(update={"results": [str(tmp_path / "gone.json")]})
    assert "lr_sweep.html" in build(built, fake, output, "table6", "lr_sweep", earlier=[lost])
    gone = earlier.model_copy(update={"table": str(tmp_path / "lr_sweep.json")})
    site = build(built, fake, output, "table6", "lr_sweep", earlier=[gone])
    assert not {"lr_sweep.html", "data/table-lr_sweep.js"} & site.keys()
    assert "lr_sweep.html" not in site["index.html"]


def test_a_figure_follows_the_page_into_the_dark(
    built: Path, fake: FakeResults, tmp_path: Path
) -> None:
    picture = build(built, fake, tmp_path / "index.html", "table6")["figures/table6.svg"]
    drawn = (built / "table6.svg").read_text()
    start = picture.index("<style>")
    style = picture[start : picture.index("</style>") + len("</style>")]
    assert picture.replace(style, "", 1) == drawn  # nothing else differs
    assert "prefers-color-scheme: dark" in style and '[style*="fill: #1c1d21"]' in style


def test_the_caption_of_a_figure_explains_its_marks(
    built: Path, fake: FakeResults, tmp_path: Path
) -> None:
    build_report(
        report_config([], ["v2_sinks", "table6"]),
        tables=[], figures=[built / "v2_sinks.svg", built / "table6.svg"], results=fake.results,
        verdicts=built / "decided" / "verdicts.json", output=tmp_path / "index.html",
    )  # fmt: skip
    captions = [
        re.findall(r"<figcaption>(.*?)</figcaption>", (tmp_path / name).read_text(), re.DOTALL)
        for name in ("v2_sinks.html", "table6.html")
    ]
    (marked,), (plain,) = captions
    assert "our interpretation" in marked and "DINT: causal form" in marked
    assert "interpretation" not in plain


def test_files_of_an_earlier_report_are_removed(
    built: Path, fake: FakeResults, tmp_path: Path
) -> None:
    build(built, fake, tmp_path / "index.html", "table6")
    left = [tmp_path / name for name in ("table5.html", "assets/old.js", "figures/old.svg")]
    for path in left:
        path.touch()
    build(built, fake, tmp_path / "index.html", "table6")
    assert not any(path.exists() for path in left) and (tmp_path / "assets/site.js").exists()


def test_a_missing_table_or_result_is_named(built: Path, fake: FakeResults, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"table 'table6_recall', which was not passed.*snakemake"):
        build(built, fake, tmp_path / "index.html", "table6_recall")
    remaining = [p for p in fake.results if not str(p).endswith("validation_slices/diff/1.json")]
    with pytest.raises(UserError, match="table 'table6' shows the job evaluation-diff-"):
        build_report(
            report_config(["table6"], []), tables=[built / "table6.json"], figures=[],
            results=remaining,
            verdicts=built / "decided" / "verdicts.json", output=tmp_path / "index.html",
        )  # fmt: skip
    (tmp_path / "table6.json").write_text('{"artifact": "table6"')
    with pytest.raises(DataError, match="not a complete table"):
        build_report(
            report_config(["table6"], []), tables=[tmp_path / "table6.json"], figures=[],
            verdicts=built / "decided" / "verdicts.json", results=fake.results,
            output=tmp_path / "index.html",
        )  # fmt: skip
    assert not (tmp_path / "index.html").exists()


def test_durations() -> None:
    assert [format_duration(s) for s in (3.21, 90, 3599.7, 7260)] == [
        "3.2 s", "1 min 30 s", "1 h 0 min", "2 h 1 min",
    ]  # fmt: skip
