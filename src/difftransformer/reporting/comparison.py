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
from difftransformer.provenance.result import Result, read_result
from difftransformer.reporting.document import Cell, Section, TableDocument
from difftransformer.reporting.frame import PARTS
from difftransformer.reporting.numbers import decimals_for, signed
from difftransformer.reporting.origins import Origins, describe
from difftransformer.reporting.site.data import flat_settings
from difftransformer.reporting.site.pages import render_alone
from difftransformer.reporting.verdict_job import read_table, read_verdicts
from difftransformer.reporting.verdicts import Verdict

Outcome = Literal["same", "within noise", "beyond noise", "without interval"]
OUTCOMES: tuple[Outcome, ...] = ("beyond noise", "within noise", "without interval", "same")
"""In the order of what a reader wants to know first."""


class Compared(NamedTuple):
    """One cell of both builds."""

    row: str
    column: str
    kept: Cell
    other: Cell
    difference: float
    reach: float | None
    outcome: Outcome

    @property
    def written(self) -> str:
        """The difference with half its interval."""
        low, high = (None, None) if self.reach is None else (-self.reach, self.reach)
        decimals = decimals_for(self.difference, low, high)
        text = signed(self.difference, decimals)
        return text if self.reach is None else f"{text} ± {self.reach:.{decimals}f}"


class Table(NamedTuple):
    """Cells of one table that both builds have."""

    title: str
    artifact: str
    cells: list[Compared]


class Build(NamedTuple):
    """One of the two."""

    folder: str
    origins: Origins
    tables: dict[str, TableDocument]
    settings: dict[str, dict[str, object]]
    verdicts: dict[str, Verdict]
    """By claim; none where no verdict was asked for."""


class Judged(NamedTuple):
    """A claim that the two builds judge otherwise."""

    kept: Verdict
    other: Verdict


class Changed(NamedTuple):
    """A setting of a run that differs."""

    run: str
    setting: str
    kept: object
    other: object


class Comparison(NamedTuple):
    """What the page shows."""

    kept: Build
    other: Build
    tables: list[Table]
    counts: dict[Outcome, int]
    changed: list[Changed]
    judged: list[Judged]
    alone: list[str]


def write_comparison(kept: Path, other: Path, output: Path) -> Comparison:
    """Compare two folders of a scale, such as ``results/tiny``, and write the page.

    Raises:
        DataError: One has no table, or they share none; or something in them is damaged.
    """
    found = compare(_build(kept), _build(other))
    write_text(output, render_alone("compare.html.j2", comparison=found, outcomes=OUTCOMES))
    return found


def compare(kept: Build, other: Build) -> Comparison:
    """Compare what both have.

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
            Judged(one, two)
            for claim, one in kept.verdicts.items()
            if (two := other.verdicts.get(claim)) is not None and two.verdict != one.verdict
        ],
        sorted(kept.tables.keys() ^ other.tables.keys()),
    )


def judge(one: Cell, two: Cell) -> tuple[float | None, Outcome]:
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


def _table(kept: TableDocument, other: TableDocument) -> Table:
    cells = [
        _compared(row.label, column.header, one, two)
        for section in kept.sections
        for row in section.rows
        for column in section.visible()
        if (one := section.cell(row.run, column.id)) is not None
        and (two := _twin(other, section, one)) is not None
        and one.value is not None
        and two.value is not None
        and one.by_seed()  # what a row is, is no measurement
    ]
    return Table(kept.title, kept.artifact, cells)


def _twin(other: TableDocument, section: Section, cell: Cell) -> Cell | None:
    """The same cell, of the section of the same title where there is one."""
    same = next((one for one in other.sections if one.title == section.title), None)
    found = None if same is None else same.cell(cell.row, cell.column)
    return found or other.find(cell.row, cell.column)


def _compared(row: str, column: str, one: Cell, two: Cell) -> Compared:
    assert one.value is not None and two.value is not None
    reach, outcome = judge(one, two)
    return Compared(row, column, one, two, two.value - one.value, reach, outcome)


def _changed(kept: Build, other: Build) -> list[Changed]:
    return [
        Changed(run, key, one.get(key), two.get(key))
        for run, one in sorted(kept.settings.items())
        if (two := other.settings.get(run)) is not None
        for key in sorted(one.keys() | two.keys())
        if one.get(key) != two.get(key)
    ]


def _build(folder: Path) -> Build:
    tables = [read_table(path) for path in sorted((folder / "tables").glob("[!.]*.json"))]
    if not tables:
        raise DataError(f"{folder}: has no table; name the folder of a scale, such as results/tiny")
    paths = [path for part in PARTS for path in sorted(folder.glob(part))]
    results = [read_result(path) for path in paths]
    by_job = {one.job_id: path for one, path in zip(results, paths, strict=True)}
    judged = folder / "verdicts.json"
    verdicts = read_verdicts(judged).verdicts if judged.is_file() else []
    return Build(
        folder.as_posix(),
        describe(results, by_job),
        {table.artifact: table for table in tables},
        _settings(results),
        {one.claim: one for one in verdicts},
    )


def _settings(results: Iterable[Result]) -> dict[str, dict[str, object]]:
    return {one.run: flat_settings(one) for one in results if one.kind == "training"}
