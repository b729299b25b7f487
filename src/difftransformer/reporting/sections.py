"""Sections of metric columns: means over seeds and paired differences."""

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
    """A table column that is computed from metrics of results.

    Attributes:
        id: Id of the column, used in claims and published tables, too.
        header: Header of the column.
        source: Name of a metric, by default the id; or weights by metric, for a weighted sum; or a
            function of a result that returns the value, None: undefined.
        seed_note: Text after a seed's value when a reader opens a cell.
        csv_only: Whether the column is in the csv only.
        show_difference: Whether a column with paired differences is added if rows have baselines.
    """

    id: str
    header: str
    source: str | Mapping[str, float] | Callable[[Result], float | None] | None = None
    seed_note: Callable[[Result], str] | None = None
    csv_only: bool = False
    show_difference: bool = False

    @property
    def terms(self) -> Mapping[str, float] | None:
        """Weights of the value by metric, None if it is a function of a result."""
        if callable(self.source):
            return None
        return self.source if isinstance(self.source, Mapping) else {self.source or self.id: 1.0}

    def value(self, result: Result) -> float | None:
        """Return the column's value for one result, None if it is undefined.

        Raises:
            UserError: The result lacks the metric.
        """
        if callable(self.source):
            return self.source(result)
        terms = self.terms or {}
        values = [get_metric(result, name) for name in terms]
        if None in values:
            return None
        return math.fsum(w * (v or 0.0) for w, v in zip(terms.values(), values, strict=True))

    def cell(
        self, run: str, results: Iterable[Result], decimals: int, published: PublishedValues
    ) -> Cell:
        """Return the cell with the mean over the results of a row.

        Raises:
            UserError: A result lacks the metric.
        """
        values = ((result, self.value(result)) for result in results)
        seeds = seed_values(values, decimals, terms=self.terms, seed_note=self.seed_note)
        return mean_cell(CellKey(run, self.id), seeds, decimals, published)


def metric_section(
    context: SectionContext[Any],
    metrics: Sequence[MetricColumn],
    *,
    decimals: int,
    notes: Sequence[str],
    facts: bool = False,
) -> Section:
    """Return a table section with means over seeds, and paired differences to the baselines.

    Args:
        context: The configured section with its results.
        metrics: Columns of the section.
        decimals: Decimals of all numbers.
        notes: Notes on how the metrics were measured.
        facts: Whether columns that describe the models come first.

    Raises:
        UserError: A result is missing or lacks a metric.
    """
    cells = metric_cells(context, metrics, decimals, context.published)
    cells += paired_differences(context.rows, [metric.id for metric in metrics], cells, decimals)
    columns = [Column(id=m.id, header=m.header, csv_only=m.csv_only) for m in metrics]
    if facts:
        group = row_facts(context)
        columns, cells = [*group.columns, *columns], [*group.cells, *cells]
        notes = [*group.notes, *notes]
    sizes = fine_tuned_sizes(context)
    columns, cells, notes = (
        [*columns, *sizes.columns],
        [*cells, *sizes.cells],
        [*notes, *sizes.notes],
    )
    if context.has_baselines:
        columns += [
            Column(
                id=metric.id + DIFFERENCE_SUFFIX,
                header=f"Δ {metric.header}",
                csv_only=not metric.show_difference,
            )
            for metric in metrics
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
    """Return a table section of given columns and cells.

    Title and rows are by default those of the context. A difference that the paper itself prints
    becomes the published value of a paired difference.
    """
    rows = context.rows if rows is None else rows
    baselines = {row.run: row.baseline for row in rows}

    def with_printed_difference(cell: Cell) -> Cell:
        column = cell.column.removesuffix(DIFFERENCE_SUFFIX)
        printed = context.published.difference(cell.row, baselines.get(cell.row), column)
        if column == cell.column or printed is None:
            return cell
        ends = (f"{end:+g}".replace("-", MINUS) for end in (printed.low, printed.high))
        text = " to ".join(dict.fromkeys(ends))
        return cell.model_copy(update={"paper_value": printed.middle, "paper_text": text})

    return Section(
        title=context.title if title is None else title,
        columns=list(columns),
        rows=[Row(run=row.run, label=row.label) for row in rows],
        cells=[with_printed_difference(cell) for cell in cells],
        notes=list(notes),
        proxy=context.proxy,
    )


def metric_cells(
    context: SectionContext[Any],
    metrics: Sequence[MetricColumn],
    decimals: int,
    published: PublishedValues,
) -> list[Cell]:
    """Return cells with the mean over seeds of each metric column, row by row.

    Raises:
        UserError: A result is missing or lacks a metric.
    """
    return [
        metric.cell(row.run, results, decimals, published)
        for row in context.rows
        for results in [context.eval_results(row)]
        for metric in metrics
    ]


def layer_columns(context: SectionContext[Any], name: str, header: str) -> list[MetricColumn]:
    """Return csv-only columns for a metric that each layer has, one column per layer.

    Models with fewer layers have no value in the last columns.
    """
    results = context.eval_results()
    return [
        MetricColumn(
            layer_name,
            f"{header}, layer {layer + 1}",
            source=None
            if all(layer_name in result.metrics for result in results)
            else partial(_metric_if_present, layer_name),
            csv_only=True,
        )
        for layer in range(count_layers(name, results))
        for layer_name in [layer_metric(name, layer)]
    ]


def _metric_if_present(name: str, result: Result) -> float | None:
    return get_metric(result, name) if name in result.metrics else None


class ColumnGroup(NamedTuple):
    """Columns with their cells and notes, which are added to a section together."""

    columns: list[Column]
    cells: list[Cell]
    notes: list[str]


def row_facts(context: SectionContext[Any]) -> ColumnGroup:
    """Return columns that describe each row's model, with its λ by layer after training."""
    columns = [Column(id=key, header=header) for key, header in FACT_COLUMNS.items()]
    cells = [
        fact_cell(
            CellKey(row.run, key), row.facts.get(key), context.train_results(row), context.published
        )
        for row in context.rows
        for key in FACT_COLUMNS
    ]
    lambdas = [layers for row in context.rows if (layers := _lambdas(context, row))]
    if not lambdas:
        return ColumnGroup(columns, cells, [])
    cells += [cell for layers in lambdas for cell in (_joined(layers), *layers)]
    columns.append(Column(id=LAMBDA, header="λ by layer"))
    columns += [
        Column(id=name, header=name, csv_only=True)
        for name in dict.fromkeys(cell.column for layers in lambdas for cell in layers)
    ]
    note = (
        "λ by layer: factor of the attention map that a head subtracts, at the end of training; "
        "mean over seeds and heads, and over tokens where λ depends on the token."
    )
    return ColumnGroup(columns, cells, [note])


def fine_tuned_sizes(context: SectionContext[Any]) -> ColumnGroup:
    """Return columns with the numbers of trained and added parameters of fine-tuned models.

    Without such models the group is empty.
    """
    cells = []
    for row in context.rows:
        run = next((sweep.run_id for sweep in context.sweep_rows(row)), row.run)
        seeds = [] if row.pretrained else context.seeds
        results = [context.results.training(run, seed) for seed in seeds]
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
            "Trained: parameters that fine-tuning changes. Extra: parameters that fine-tuning adds "
            "to the model; merging removes them."
        ],
    )


def _lambdas(context: SectionContext[Any], row: ResolvedRow) -> list[Cell]:
    """Return the mean λ over seeds of each layer that has one."""
    trained = context.train_results(row)
    return [
        MetricColumn(name, "").cell(row.run, trained, _LAMBDA_DECIMALS, context.published)
        for name in map(lambda_metric, range(int(row.facts.get("layers") or 0)))
        if all(name in result.metrics for result in trained)
    ]


def _joined(layers: Sequence[Cell]) -> Cell:
    seeds = [
        seed[0].model_copy(update={"value": None, "text": ", ".join(cell.text for cell in seed)})
        for seed in zip(*(cell.seeds for cell in layers), strict=True)
    ]
    text = ", ".join(format_number(cell.value or 0.0, _LAMBDA_DECIMALS) for cell in layers)
    return Cell(row=layers[0].row, column=LAMBDA, text=text, n=len(seeds), seeds=seeds)
