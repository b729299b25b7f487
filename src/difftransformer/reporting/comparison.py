"""Two builds side by side: what differs between them, within noise or not, as one page.

The builds may be of two machines, two commits or two scales: tables are compared cell by cell, and
runs by their settings.
"""

from collections import Counter
from collections.abc import Iterable
from math import hypot
from pathlib import Path
from typing import Literal, NamedTuple

from difftransformer.errors import DataError
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.layout import Layout
from difftransformer.provenance.result import Result, read_result
from difftransformer.reporting.document import Cell, TableDocument
from difftransformer.reporting.number_format import decimals_for, format_signed, pluralize
from difftransformer.reporting.provenance_summary import ProvenanceSummary, summarize_provenance
from difftransformer.reporting.site.data import flat_settings
from difftransformer.reporting.site.pages import render_alone
from difftransformer.reporting.verdict_job import read_table, read_verdicts
from difftransformer.reporting.verdicts import Verdict

Outcome = Literal[
    "same", "within noise", "beyond noise", "without interval", "only in A", "only in B"
]
OUTCOMES: tuple[Outcome, ...] = (
    "beyond noise", "only in A", "only in B", "within noise", "without interval", "same",
)  # fmt: skip
"""In the order of what a reader wants to know first."""

NamesByKind = dict[str, list[str]]
"""Names of what one build has and the other lacks, by what they are: table, row, verdict, run."""


class FileComparison(NamedTuple):
    """One cell that has a value in a build at least; None: a build has no such cell."""

    row: str
    column: str
    kept: Cell | None
    other: Cell | None
    difference: float | None
    reach: float | None
    outcome: Outcome

    @property
    def written(self) -> str:
        """The difference with half its interval; empty where there is none."""
        if self.difference is None:
            return ""
        low, high = (None, None) if self.reach is None else (-self.reach, self.reach)
        decimals = decimals_for(self.difference, low, high)
        text = format_signed(self.difference, decimals)
        return text if self.reach is None else f"{text} ± {self.reach:.{decimals}f}"


class ComparedTable(NamedTuple):
    """A table that both builds have: cells of the rows of both, and rows of one alone."""

    title: str
    artifact: str
    cells: list[FileComparison]
    kept_alone: list[str]
    other_alone: list[str]


class Build(NamedTuple):
    """One of the two."""

    folder: str
    origins: ProvenanceSummary
    tables: dict[str, TableDocument]
    settings: dict[str, dict[str, object]]
    verdicts: dict[str, Verdict]
    """By claim; none where no verdict was asked for."""


class DifferingVerdict(NamedTuple):
    """A claim that the two builds judge otherwise."""

    kept: Verdict
    other: Verdict


class DifferingSetting(NamedTuple):
    """A setting of a run that differs."""

    run: str
    setting: str
    kept: object
    other: object


class Comparison(NamedTuple):
    """What the page shows."""

    kept: Build
    other: Build
    tables: list[ComparedTable]
    counts: dict[Outcome, int]
    changed: list[DifferingSetting]
    judged: list[DifferingVerdict]
    kept_alone: NamesByKind
    other_alone: NamesByKind

    @property
    def summary(self) -> str:
        """How many cells have come out how, and how much one of the builds alone has."""
        cells = ", ".join(f"{number} {name}" for name, number in self.counts.items() if number)
        parts = [cells or "no cell that both have"]
        for build, alone in (("A", self.kept_alone), ("B", self.other_alone)):
            if alone:
                numbers = (pluralize(len(names), what) for what, names in alone.items())
                parts.append(f"in {build} alone {', '.join(numbers)}")
        return "; ".join(parts)


def write_comparison(kept: Path, other: Path, output: Path) -> Comparison:
    """Compare two folders of a scale, such as ``results/tiny``, and write the page.

    Raises:
        DataError: One has no table, or they share none; or something in them is damaged.
    """
    found = compare(_build(kept), _build(other))
    write_text(output, render_alone("compare.html.j2", comparison=found, outcomes=OUTCOMES))
    return found


def compare(kept: Build, other: Build) -> Comparison:
    """Compare what both have, and name what one of them alone has.

    Raises:
        DataError: They share no table.
    """
    shared = [name for name in kept.tables if name in other.tables]
    if not shared:
        raise DataError(
            f"{kept.folder} and {other.folder} share no table ({', '.join(kept.tables)}; "
            f"{', '.join(other.tables)}): build the same artifact in both"
        )
    tables = [_table(kept.tables[name], other.tables[name]) for name in shared]
    counts = Counter(cell.outcome for table in tables for cell in table.cells)
    return Comparison(
        kept,
        other,
        tables,
        {name: counts[name] for name in OUTCOMES},
        _changed(kept, other),
        [
            DifferingVerdict(one, two)
            for claim, one in kept.verdicts.items()
            if (two := other.verdicts.get(claim)) is not None and two.words != one.words
        ],
        _alone(kept, other, [row for table in tables for row in table.kept_alone]),
        _alone(other, kept, [row for table in tables for row in table.other_alone]),
    )


def _alone(build: Build, than: Build, rows: list[str]) -> NamesByKind:
    found = {
        "table": sorted(build.tables.keys() - than.tables.keys()),
        "row": rows,
        "verdict": [
            f"{claim} ({one.words})"
            for claim, one in build.verdicts.items()
            if claim not in than.verdicts
        ],
        "run": sorted(build.settings.keys() - than.settings.keys()),
    }
    return {what: names for what, names in found.items() if names}


def classify_difference(one: Cell, two: Cell) -> tuple[float | None, Outcome]:
    """Half the interval of a difference, and whether it is within it.

    The builds count as independent: half the interval is the root of the sum of both halves'
    squares, some 95% where each is 95%, and rather too wide with few seeds, or where both were
    asked the same.
    """
    assert one.value is not None and two.value is not None
    if one.value == two.value:
        return None, "same"
    halves = [_half(one), _half(two)]
    if None in halves:
        return None, "without interval"
    reach = hypot(*(half for half in halves if half is not None))
    within = abs(two.value - one.value) <= reach
    return reach, "within noise" if within else "beyond noise"


def _half(cell: Cell) -> float | None:
    return None if cell.ci_low is None or cell.ci_high is None else (cell.ci_high - cell.ci_low) / 2


def _table(kept: TableDocument, other: TableDocument) -> ComparedTable:
    ours, theirs = _by_row(kept), _by_row(other)
    cells = []
    for row in (row for row in ours if row in theirs):
        for column in {**ours[row], **theirs[row]}:
            found = [one[row].get(column) for one in (ours, theirs)]
            shown = next(one for one in found if one is not None)
            pair = [None if one is None else one.cell for one in found]
            valued = [cell for cell in pair if cell is not None and cell.value is not None]
            if valued and valued[0].by_seed():  # what a row is, is no evaluation
                cells.append(_compared(shown.label, shown.header, *pair))
    kept_alone, other_alone = (
        [
            f"{next(iter(columns.values())).label} ({kept.artifact})"
            for row, columns in one.items()
            if row not in another
        ]
        for one, another in ((ours, theirs), (theirs, ours))
    )
    return ComparedTable(kept.title, kept.artifact, cells, kept_alone, other_alone)


class _Shown(NamedTuple):
    """A cell with the names of its row and column."""

    label: str
    header: str
    cell: Cell


def _by_row(table: TableDocument) -> dict[str, dict[str, _Shown]]:
    """Return the visible cells by row and column; a cell that two sections show is the same."""
    rows: dict[str, dict[str, _Shown]] = {}
    for section in table.sections:
        at = {(cell.row, cell.column): cell for cell in section.cells}
        for row in section.rows:
            for column in section.visible():
                if (cell := at.get((row.run, column.id))) is not None:
                    shown = _Shown(row.label, column.header, cell)
                    rows.setdefault(row.run, {}).setdefault(column.id, shown)
    return rows


def _compared(row: str, column: str, one: Cell | None, two: Cell | None) -> FileComparison:
    if two is None or two.value is None:
        return FileComparison(row, column, one, two, None, None, "only in A")
    if one is None or one.value is None:
        return FileComparison(row, column, one, two, None, None, "only in B")
    reach, outcome = classify_difference(one, two)
    return FileComparison(row, column, one, two, two.value - one.value, reach, outcome)


def _changed(kept: Build, other: Build) -> list[DifferingSetting]:
    return [
        DifferingSetting(run, key, one.get(key), two.get(key))
        for run, one in sorted(kept.settings.items())
        if (two := other.settings.get(run)) is not None
        for key in sorted(one.keys() | two.keys())
        if one.get(key) != two.get(key)
    ]


def _build(folder: Path) -> Build:
    layout = Layout.of(folder)
    tables = [read_table(path) for path in layout.existing(f"{layout.table('*')}.json")]
    if not tables:
        raise DataError(f"{folder}: has no table; name the folder of a scale, such as results/tiny")
    paths = layout.results()
    results = [read_result(path) for path in paths]
    by_job = {one.job_id: path for one, path in zip(results, paths, strict=True)}
    judged = Path(layout.verdicts)
    verdicts = read_verdicts(judged).verdicts if judged.is_file() else []
    return Build(
        "/".join(folder.parts[-2:]),  # the page is for others, too
        summarize_provenance(results, by_job),
        {table.artifact: table for table in tables},
        _settings(results),
        {one.claim: one for one in verdicts},
    )


def _settings(results: Iterable[Result]) -> dict[str, dict[str, object]]:
    return {one.run: flat_settings(one) for one in results if one.kind == "training"}
