"""Sections whose columns are metrics: means over seeds and paired differences."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from difftransformer.config.resolved_artifacts import ResolvedGridRow, ResolvedRow
from difftransformer.models.config import LAMBDA, lambda_metric, layer_metric
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import (
    DIFFERENCE_SUFFIX,
    FACT_COLUMNS,
    CellKey,
    PublishedValues,
    fact_cell,
    mean_cell,
    paired_differences,
    seed_values,
)
from difftransformer.reporting.collect import count_layers, get_metric
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.number_format import MINUS, format_count, format_number
from difftransformer.reporting.section_context import SectionContext

_LAMBDA_DECIMALS = 2
_SIZES = {"trained_parameters": "Trained", "extra_parameters": "Extra"}


@dataclass(frozen=True)
class MetricColumn:
    """One column.

    Attributes:
        id: Id of the column, also in claims and published tables.
        header: What stands above it.
        of: Metric of a result, the id where left out; metrics with their factors, whose sum it is;
            or what gives its number, None: undefined.
        remark: What a reader who opens a cell is told beside a seed's number.
        hidden: Whether the column is in the csv alone.
        compared: Whether its paired difference is shown, too, where rows are compared.
    """

    id: str
    header: str
    source: str | Mapping[str, float] | Callable[[Result], float | None] | None = None
    seed_note: Callable[[Result], str] | None = None
    csv_only: bool = False
    show_difference: bool = False

    @property
    def terms(self) -> Mapping[str, float] | None:
        """Metrics of a result that it adds up, with their factors; None where it is no sum."""
        if callable(self.source):
            return None
        return self.source if isinstance(self.source, Mapping) else {self.source or self.id: 1.0}

    def value(self, result: Result) -> float | None:
        """Number of one result.

        Raises:
            UserError: It was not measured.
        """
        if callable(self.source):
            return self.source(result)
        found = [(factor, get_metric(result, name)) for name, factor in (self.terms or {}).items()]
        known = [factor * value for factor, value in found if value is not None]
        return math.fsum(known) if len(known) == len(found) else None

    def cell(
        self, run: str, results: Iterable[Result], decimals: int, paper: PublishedValues
    ) -> Cell:
        """Return the mean over the results of a row.

        Raises:
            UserError: It was not measured.
        """
        found = ((result, self.value(result)) for result in results)
        seeds = seed_values(found, decimals, terms=self.terms, remark=self.seed_note)
        return mean_cell(CellKey(run, self.id), seeds, decimals, paper)


def metric_section(
    context: SectionContext[Any],
    metrics: Sequence[MetricColumn],
    *,
    decimals: int,
    notes: Sequence[str],
    facts: bool = False,
) -> Section:
    """Make a section of means over seeds, and of paired differences where rows are compared.

    Args:
        context: The section.
        metrics: Its columns, numbers of the section's suite.
        decimals: Decimals of all numbers.
        notes: What is to be said about how they were measured.
        facts: Whether columns that say what a row is stand before them.

    Raises:
        UserError: a result is missing or lacks a metric.
    """
    cells = metric_cells(context, metrics, decimals, context.published)
    cells += paired_differences(context.rows, [one.id for one in metrics], cells, decimals)
    columns = [Column(id=one.id, header=one.header, csv_only=one.csv_only) for one in metrics]
    if facts:
        what = row_facts(context)
        columns, cells = [*what.columns, *columns], [*what.cells, *cells]
        notes = [*what.notes, *notes]
    sizes = fine_tuned_sizes(context)
    columns, cells, notes = (
        [*columns, *sizes.columns],
        [*cells, *sizes.cells],
        [*notes, *sizes.notes],
    )
    if context.has_baselines:
        columns += [
            Column(
                id=one.id + DIFFERENCE_SUFFIX,
                header=f"Δ {one.header}",
                csv_only=not one.show_difference,
            )
            for one in metrics
        ]
        notes = [*notes, *context.difference_note()]
    return make_section(context, columns, cells, notes)


def make_section(
    context: SectionContext[Any],
    columns: Sequence[Column],
    cells: Sequence[Cell],
    notes: Sequence[str] = (),
    *,
    title: str | None = None,
    rows: Sequence[ResolvedRow | ResolvedGridRow] | None = None,
) -> Section:
    """Make a section of columns and cells, with the view's title and rows where none are given.

    Differences that are printed as such stand beside ours.
    """
    shown = context.rows if rows is None else rows
    baseline = {row.run: row.baseline for row in shown}

    def beside(cell: Cell) -> Cell:
        column = cell.column.removesuffix(DIFFERENCE_SUFFIX)
        printed = context.published.difference(cell.row, baseline.get(cell.row), column)
        if column == cell.column or printed is None:
            return cell
        ends = (f"{end:+g}".replace("-", MINUS) for end in (printed.low, printed.high))
        known = {"paper_value": printed.middle, "paper_text": " to ".join(dict.fromkeys(ends))}
        return cell.model_copy(update=known)

    return Section(
        title=context.title if title is None else title,
        columns=list(columns),
        rows=[Row(run=row.run, label=row.label) for row in shown],
        cells=[beside(cell) for cell in cells],
        notes=list(notes),
        proxy=context.proxy,
    )


def metric_cells(
    context: SectionContext[Any],
    metrics: Sequence[MetricColumn],
    decimals: int,
    paper: PublishedValues,
) -> list[Cell]:
    """Cells of metrics, row by row: a mean over the seeds each.

    Raises:
        UserError: a result is missing or lacks a metric.
    """
    return [
        one.cell(row.run, results, decimals, paper)
        for row in context.rows
        for results in [context.eval_results(row)]
        for one in metrics
    ]


def layer_columns(context: SectionContext[Any], name: str, header: str) -> list[MetricColumn]:
    """Return hidden columns of a metric in each layer.

    A row without a layer has nothing in its column.
    """
    results = context.eval_results()
    return [
        MetricColumn(
            one,
            f"{header}, layer {layer + 1}",
            source=None
            if all(one in result.metrics for result in results)
            else partial(_where_there, one),
            csv_only=True,
        )
        for layer in range(count_layers(name, results))
        for one in [layer_metric(name, layer)]
    ]


def _where_there(name: str, result: Result) -> float | None:
    return get_metric(result, name) if name in result.metrics else None


class ColumnGroup(NamedTuple):
    """What the rows of a section are, before what is measured of them."""

    columns: list[Column]
    cells: list[Cell]
    notes: list[str]


def row_facts(context: SectionContext[Any]) -> ColumnGroup:
    """Say what each row is, and with which lambdas its training ended, if it has some."""
    columns = [Column(id=key, header=header) for key, header in FACT_COLUMNS.items()]
    cells = [
        fact_cell(
            CellKey(row.run, key), row.facts.get(key), context.train_results(row), context.published
        )
        for row in context.rows
        for key in FACT_COLUMNS
    ]
    lambdas = [found for row in context.rows if (found := _lambdas(context, row))]
    if not lambdas:
        return ColumnGroup(columns, cells, [])
    cells += [cell for found in lambdas for cell in (_side_by_side(found), *found)]
    columns.append(Column(id=LAMBDA, header="λ by layer"))
    columns += [
        Column(id=name, header=name, csv_only=True)
        for name in dict.fromkeys(cell.column for found in lambdas for cell in found)
    ]
    note = (
        "λ by layer: what heads multiply the map by that they subtract, at the end of training; "
        "mean over seeds and heads, and over tokens where it depends on them."
    )
    return ColumnGroup(columns, cells, [note])


def fine_tuned_sizes(context: SectionContext[Any]) -> ColumnGroup:
    """Say what adapting trains and adds in each row that is adapted; nothing where none is."""
    cells = []
    for row in context.rows:
        at_one_rate = next((one.run_id for one in context.sweep_rows(row)), row.run)
        seeds = [] if row.pretrained else context.seeds
        results = [context.results.training(at_one_rate, seed) for seed in seeds]
        for name in _SIZES:
            if all(name in result.metrics for result in results) and results:
                cell = MetricColumn(name, "").cell(row.run, results, 0, context.published)
                cells.append(cell.model_copy(update={"text": format_count(cell.value or 0.0)}))
    if not cells:
        return ColumnGroup([], [], [])
    return ColumnGroup(
        [Column(id=name, header=header) for name, header in _SIZES.items()],
        cells,
        [
            "Trained: parameters that change while a model is adapted. Extra: those beside the "
            "model's own, gone when they are folded into it."
        ],
    )


def _lambdas(context: SectionContext[Any], row: ResolvedRow) -> list[Cell]:
    """Mean over seeds in each layer that has one."""
    trained = context.train_results(row)
    return [
        MetricColumn(name, "").cell(row.run, trained, _LAMBDA_DECIMALS, context.published)
        for name in map(lambda_metric, range(int(row.facts.get("layers") or 0)))
        if all(name in result.metrics for result in trained)
    ]


def _side_by_side(layers: Sequence[Cell]) -> Cell:
    seeds = [
        one[0].model_copy(update={"value": None, "text": ", ".join(seed.text for seed in one)})
        for one in zip(*(cell.seeds for cell in layers), strict=True)
    ]
    text = ", ".join(format_number(cell.value or 0.0, _LAMBDA_DECIMALS) for cell in layers)
    return Cell(row=layers[0].row, column=LAMBDA, text=text, n=len(seeds), seeds=seeds)
