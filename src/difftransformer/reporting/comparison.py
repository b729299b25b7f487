"""Comparison of two builds as a page: which cells differ beyond noise, and which settings.

The builds may be from two machines, two commits or two scales.
"""

from collections import Counter
from math import hypot
from pathlib import Path
from typing import Literal, NamedTuple

from difftransformer.errors import DataError
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.layout import Layout
from difftransformer.provenance.result import read_result
from difftransformer.reporting.document import Cell, TableDocument
from difftransformer.reporting.number_format import (
    decimals_for,
    format_signed,
    pluralize,
    with_half_width,
)
from difftransformer.reporting.provenance_summary import ProvenanceSummary, summarize_provenance
from difftransformer.reporting.site.data import flat_settings
from difftransformer.reporting.site.pages import render_self_contained
from difftransformer.reporting.verdict_job import read_table, read_verdicts
from difftransformer.reporting.verdicts import Verdict

Outcome = Literal[
    "same", "within noise", "beyond noise", "without interval", "only in A", "only in B"
]
OUTCOMES: tuple[Outcome, ...] = (
    "beyond noise", "only in A", "only in B", "within noise", "without interval", "same",
)  # fmt: skip
"""Outcomes in the order of the page."""

NamesByKind = dict[str, list[str]]
"""Names of the tables, rows, verdicts and runs that only one build has, by kind."""


class ComparedCell(NamedTuple):
    """The same table cell in builds A and B; None for a build without the cell."""

    row: str
    column: str
    a: Cell | None
    b: Cell | None
    difference: float | None
    half_width: float | None
    outcome: Outcome

    @property
    def text(self) -> str:
        """Difference ± half its interval as text, empty if there is no difference."""
        if self.difference is None:
            return ""
        low, high = (None, None) if self.half_width is None else (-self.half_width, self.half_width)
        decimals = decimals_for(self.difference, low, high)
        return with_half_width(format_signed(self.difference, decimals), low, high, decimals)


class ComparedTable(NamedTuple):
    """A table that both builds have: cells of shared rows, and rows that only one build has."""

    title: str
    artifact: str
    cells: list[ComparedCell]
    only_a: list[str]
    only_b: list[str]


class Build(NamedTuple):
    """One of the two builds that are compared, with its verdicts by claim."""

    folder: str
    provenance: ProvenanceSummary
    tables: dict[str, TableDocument]
    settings: dict[str, dict[str, object]]
    verdicts: dict[str, Verdict]


class DifferingVerdict(NamedTuple):
    """A claim whose verdicts in the two builds differ."""

    a: Verdict
    b: Verdict


class DifferingSetting(NamedTuple):
    """A setting of a run that differs between the two builds."""

    run: str
    setting: str
    a: object
    b: object


class Comparison(NamedTuple):
    """The content of the page that compares two builds."""

    a: Build
    b: Build
    tables: list[ComparedTable]
    counts: dict[Outcome, int]
    settings: list[DifferingSetting]
    verdicts: list[DifferingVerdict]
    only_a: NamesByKind
    only_b: NamesByKind

    @property
    def summary(self) -> str:
        """Text with the number of cells by outcome.

        It also has the numbers of tables, rows and runs that only one build has.
        """
        cells = ", ".join(f"{number} {name}" for name, number in self.counts.items() if number)
        parts = [cells or "no shared cell"]
        for build, only in (("A", self.only_a), ("B", self.only_b)):
            if only:
                numbers = (pluralize(len(names), kind) for kind, names in only.items())
                parts.append(f"only in {build}: {', '.join(numbers)}")
        return "; ".join(parts)


def write_comparison(a: Path, b: Path, output: Path) -> Comparison:
    """Compare two scale folders, such as ``results/tiny``; write and return the comparison.

    Raises:
        DataError: A folder has no table, they share no table, or a file is damaged.
    """
    comparison = compare(_build(a), _build(b))
    page = render_self_contained("compare.html.j2", comparison=comparison, outcomes=OUTCOMES)
    write_text(output, page)
    return comparison


def compare(a: Build, b: Build) -> Comparison:
    """Return the comparison of two builds.

    Raises:
        DataError: The builds share no table.
    """
    shared = [name for name in a.tables if name in b.tables]
    if not shared:
        raise DataError(
            f"{a.folder} and {b.folder} share no table ({', '.join(a.tables)}; "
            f"{', '.join(b.tables)}); build the same artifact in both"
        )
    tables = [_table(a.tables[name], b.tables[name]) for name in shared]
    counts = Counter(cell.outcome for table in tables for cell in table.cells)
    return Comparison(
        a,
        b,
        tables,
        {name: counts[name] for name in OUTCOMES},
        _differing_settings(a, b),
        [
            DifferingVerdict(verdict, other)
            for claim, verdict in a.verdicts.items()
            if (other := b.verdicts.get(claim)) is not None and other.words != verdict.words
        ],
        _only(a, b, [row for table in tables for row in table.only_a]),
        _only(b, a, [row for table in tables for row in table.only_b]),
    )


def _only(build: Build, other: Build, rows: list[str]) -> NamesByKind:
    """Return what ``build`` has and ``other`` lacks."""
    names = {
        "table": sorted(build.tables.keys() - other.tables.keys()),
        "row": rows,
        "verdict": [
            f"{claim} ({verdict.words})"
            for claim, verdict in build.verdicts.items()
            if claim not in other.verdicts
        ],
        "run": sorted(build.settings.keys() - other.settings.keys()),
    }
    return {kind: listed for kind, listed in names.items() if listed}


def classify_difference(a: Cell, b: Cell) -> tuple[float | None, Outcome]:
    """Return half the interval of a difference between two cells, and its outcome.

    The outcome says whether the difference is within the interval. The builds are taken as
    independent, so the half-widths add in quadrature. The result has a level of about 95% if both
    have. It is too wide with few seeds or with shared items.
    """
    assert a.value is not None and b.value is not None
    if a.value == b.value:
        return None, "same"
    ends = (a.ci_low, a.ci_high, b.ci_low, b.ci_high)
    if None in ends:
        return None, "without interval"
    a_low, a_high, b_low, b_high = (end or 0.0 for end in ends)
    half_width = hypot((a_high - a_low) / 2, (b_high - b_low) / 2)
    within = abs(b.value - a.value) <= half_width
    return half_width, "within noise" if within else "beyond noise"


def _table(a: TableDocument, b: TableDocument) -> ComparedTable:
    rows_a, rows_b = _by_row(a), _by_row(b)
    cells = []
    for row in (row for row in rows_a if row in rows_b):
        for column in {**rows_a[row], **rows_b[row]}:
            labeled = [rows[row].get(column) for rows in (rows_a, rows_b)]
            names = next(cell for cell in labeled if cell is not None)
            pair = [None if cell is None else cell.cell for cell in labeled]
            valued = [cell for cell in pair if cell is not None and cell.value is not None]
            if valued and valued[0].by_seed():  # skip facts, which are not measured
                cells.append(_compared(names.label, names.header, *pair))
    only_a, only_b = (
        [
            f"{next(iter(columns.values())).label} ({a.artifact})"
            for row, columns in rows.items()
            if row not in other
        ]
        for rows, other in ((rows_a, rows_b), (rows_b, rows_a))
    )
    return ComparedTable(a.title, a.artifact, cells, only_a, only_b)


class _LabeledCell(NamedTuple):
    """A cell with the names of its row and column."""

    label: str
    header: str
    cell: Cell


def _by_row(table: TableDocument) -> dict[str, dict[str, _LabeledCell]]:
    """Return the visible cells by row and column, each once."""
    rows: dict[str, dict[str, _LabeledCell]] = {}
    for section in table.sections:
        cells = {(cell.row, cell.column): cell for cell in section.cells}
        for row in section.rows:
            for column in section.visible():
                if (cell := cells.get((row.run, column.id))) is not None:
                    labeled = _LabeledCell(row.label, column.header, cell)
                    rows.setdefault(row.run, {}).setdefault(column.id, labeled)
    return rows


def _compared(row: str, column: str, a: Cell | None, b: Cell | None) -> ComparedCell:
    if b is None or b.value is None:
        return ComparedCell(row, column, a, b, None, None, "only in A")
    if a is None or a.value is None:
        return ComparedCell(row, column, a, b, None, None, "only in B")
    half_width, outcome = classify_difference(a, b)
    return ComparedCell(row, column, a, b, b.value - a.value, half_width, outcome)


def _differing_settings(a: Build, b: Build) -> list[DifferingSetting]:
    return [
        DifferingSetting(run, key, settings.get(key), other.get(key))
        for run, settings in sorted(a.settings.items())
        if (other := b.settings.get(run)) is not None
        for key in sorted(settings.keys() | other.keys())
        if settings.get(key) != other.get(key)
    ]


def _build(folder: Path) -> Build:
    layout = Layout.of(folder)
    tables = [read_table(path) for path in layout.existing(f"{layout.table('*')}.json")]
    if not tables:
        raise DataError(f"{folder}: has no table; name the folder of a scale, such as results/tiny")
    paths = layout.results()
    results = [read_result(path) for path in paths]
    by_job = {result.job_id: path for result, path in zip(results, paths, strict=True)}
    path = Path(layout.verdicts)
    verdicts = read_verdicts(path).verdicts if path.is_file() else []
    return Build(
        "/".join(folder.parts[-2:]),  # no absolute path, as the page may be published
        summarize_provenance(results, by_job),
        {table.artifact: table for table in tables},
        {result.run: flat_settings(result) for result in results if result.kind == "training"},
        {verdict.claim: verdict for verdict in verdicts},
    )
