import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fake_configs import resolved_artifact
from fake_results import FakeResults
from hypothesis import given
from hypothesis import strategies as st

from difftransformer.reporting.document import Section, TableDocument
from difftransformer.reporting.formats import latex, markdown
from difftransformer.reporting.formats.html import anchor
from difftransformer.reporting.formats.table_text import table_remarks
from difftransformer.reporting.number_format import (
    decimals_for,
    format_count,
    format_learning_rate,
    format_number,
    format_p_value,
    format_signed,
    pluralize,
)
from difftransformer.reporting.provenance_summary import format_duration
from difftransformer.reporting.table_job import build_table

NASTY = """<script>alert("x")</script> & 5% of $a_b$ {c} | \\d ~ ^ # [e] *f* `g` 雪"""
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Balance(HTMLParser):
    """Checks that every element that opens also closes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def balanced(html: str) -> Balance:
    parser = Balance()
    parser.feed(html)
    assert parser.open == []
    assert len(set(parser.ids)) == len(parser.ids)
    return parser


def test_notes_that_all_sections_share_appear_once() -> None:
    def section(title: str, *notes: str) -> Section:
        return Section(title=title, columns=[], rows=[], cells=[], notes=list(notes))

    parts = [section("A", "all", "one"), section("B", "all", "two"), section("C", "all", "two")]
    table = TableDocument(
        artifact="x", title="X", caption="", scale="tiny", seeds=[0], sections=parts
    )
    assert table_remarks(table) == ["Scale tiny.", "all", "A: one", "B, C: two"]
    assert table_remarks(table.model_copy(update={"sections": parts[:1]}))[1:] == ["all", "one"]


@pytest.fixture
def nasty(fake: FakeResults, tmp_path: Path) -> Path:
    """A table whose labels, caption and title are hostile."""
    artifact = resolved_artifact("table6")
    rows = [row.model_copy(update={"label": NASTY}) for row in artifact.sections[0].rows]
    part = artifact.sections[0].model_copy(update={"rows": rows, "title": NASTY})
    changed = {"sections": [part], "title": NASTY, "caption": NASTY}
    build_table(artifact.model_copy(update=changed), fake.results, tmp_path / "nasty")
    return tmp_path / "nasty"


def test_html_escapes_everything(nasty: Path) -> None:
    html = nasty.with_suffix(".html").read_text()
    parser = balanced(html)
    assert "script" not in parser.names and "&lt;script&gt;" in html
    assert not re.search(r"https?://|src=", html)


def test_tex_escapes_everything(nasty: Path) -> None:
    tex = nasty.with_suffix(".tex").read_text()
    body = "\n".join(line for line in tex.splitlines() if not line.startswith("%"))
    assert "{[}U+96EA{]}" in body and "雪" not in body
    bare = re.sub(r"\\[\\{}$&#%_]", "", body)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0 and "#" not in bare
    # A percent sign would hide the rest of its line; only the one after resizebox is meant to.
    assert [line for line in bare.splitlines() if "%" in line] == [r"\resizebox{\linewidth}{!}{%"]


def test_tex_rows_have_as_many_cells_as_columns(nasty: Path) -> None:
    tex = nasty.with_suffix(".tex").read_text()
    columns = len(re.search(r"\\begin\{tabular\}\{(l r*|lr+)\}", tex).group(1))  # type: ignore[union-attr]
    rows = [line for line in tex.splitlines() if line.endswith(r" \\")]
    assert len(rows) == 1 + len(resolved_artifact("table6").sections[0].rows)
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {columns - 1}


def test_markdown_rows_have_as_many_cells_as_columns(nasty: Path) -> None:
    lines = [x for x in nasty.with_suffix(".md").read_text().splitlines() if x.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert "<script>" not in "".join(lines).replace("\\<", "")


@given(st.text())
def test_any_text_survives_escaping(text: str) -> None:
    assert "\n" not in latex.escape(text) and "\n" not in markdown.escape(text)
    assert re.fullmatch(r"[A-Za-z0-9_-]*", anchor(text))
    bare = re.sub(r"\\[\\{}$&#%_]", "", latex.escape(text))
    assert bare.count("{") == bare.count("}")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("run `snakemake a_b` of a_b", r"run `snakemake a_b` of a\_b"),
        ("a `b|c`", r"a \`b\|c\`"),  # would end a cell
        ("one ` alone", r"one \` alone"),
        ("a & `b & c`\n", r"a &amp; `b & c`"),
    ],
)
def test_text_in_backticks_is_code(text: str, written: str) -> None:
    assert markdown.prose(text) == written


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("local_files", "`local_files`"),
        ("<b>a|b</b>\n\n# c", "`<b>a|b</b> # c`"),
        ("a`b``c", "```a`b``c```"),
        ("`a", "`` `a ``"),
    ],
)
def test_a_name_is_code_as_it_is(name: str, written: str) -> None:
    assert markdown.code(name) == written


@given(st.text(st.sampled_from("`<_ \n")))
def test_backticks_in_a_name_do_not_end_its_code(name: str) -> None:
    fence, *inside, end = re.findall("`+", markdown.code(f"a{name}b"))
    assert fence == end and fence not in inside


@given(st.floats(-1e6, 1e6, allow_nan=False), st.integers(0, 6))
def test_numbers_read_back(value: float, decimals: int) -> None:
    for text in (format_number(value, decimals), format_signed(value, decimals)):
        assert "-" not in text
        assert abs(float(text.replace("−", "-")) - value) <= 0.5000001 * 10**-decimals


def test_a_difference_is_never_rounded_to_an_interval_of_nothing() -> None:
    assert decimals_for(0.2, 0.1, 0.3) == decimals_for(0.0, None, None) == 3
    digits = decimals_for(0.000325, 0.000158, 0.000491)
    assert (format_signed(0.000325, digits), format_number(0.000158, digits)) == (
        "+0.00032",
        "0.00016",
    )
    assert decimals_for(4e-6, None, None) == 7


def test_numbers_are_formatted_for_readers() -> None:
    assert [pluralize(number, "claim") for number in (0, 1, 2)] == [
        "0 claims",
        "1 claim",
        "2 claims",
    ]
    assert format_number(-0.0001, 3) == "0.000" and format_signed(-0.0001, 3) == "0.000"
    assert format_signed(0.25, 2) == "+0.25" and format_signed(-0.25, 2) == "−0.25"
    assert (
        format_learning_rate(4e-3),
        format_learning_rate(3.2e-4),
        format_learning_rate(0.512),
        format_learning_rate(1.0),
    ) == ("4e-3", "3.2e-4", "0.512", "1")
    assert (format_count(396_000), format_count(1_200_000), format_count(1e10)) == (
        "0.396M",
        "1.2M",
        "10B",
    )
    assert (format_count(-2_000), format_count(-0.2)) == ("−2K", "0")
    assert (format_count(1.048576e12), format_learning_rate(0.0), format_duration(59.97)) == (
        "1.05T",
        "0",
        "1 min 0 s",
    )
    assert (format_count(999.6e6), format_count(999.6e9), format_count(999.4e9)) == (
        "1B",
        "1T",
        "999B",
    )
    assert (format_count(141.2), format_count(999.4), format_count(29_481)) == (
        "141",
        "999",
        "29.5K",
    )
    assert (format_p_value(1e-9), format_p_value(0.04), format_p_value(0.5)) == (
        "p < 0.001", "p = 0.040", "p = 0.50",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ('"After Nora" and "Paul".', "``After Nora'' and ``Paul''."),
        ('(the "top-5%" tokens)', r"(the ``top-5\%'' tokens)"),
        ('a 5" disk', "a 5'' disk"),
    ],
)
def test_quotation_marks_open_and_close_in_tex(text: str, printed: str) -> None:
    assert latex.escape(text) == printed
