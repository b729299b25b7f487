"""Tables of contrasts (paired differences), and a forest plot with published differences."""

from collections.abc import Iterator
from typing import NamedTuple

from difftransformer.config.papers import Replication
from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.evaluations.contrasts.settings import Options, Pair
from difftransformer.reporting.cells import DIFFERENCE_SUFFIX, UNDEFINED, paired_differences
from difftransformer.reporting.charts import cell_estimates, draw_estimates
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Cell, Column, Row, Section, SeedValue
from difftransformer.reporting.drawing import (
    INK,
    SOFT,
    Axes,
    Figure,
    RowStyle,
    escape_label,
    label_axes,
    legend_below,
    legend_handle,
)
from difftransformer.reporting.number_format import format_count, format_number, format_signed
from difftransformer.reporting.panels import subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, metric_section
from difftransformer.reporting.statistics import Contrast

_STATISTICS = {
    "interval": "95% interval", "half_width": "Half-width", "deviation": "Deviation over seeds",
    "seeds": "Seeds",
}  # fmt: skip
_REPLICATION_COLUMNS = {
    "difference": "Difference", "spread": "Lowest to highest seed",
    "deviation": "Deviation over seeds", "seeds": "Seeds", "model": "Model", "tokens": "Tokens",
}  # fmt: skip
_NOT_STATED = "–"
_GRAY = RowStyle(SOFT, (), "s")


class Line(NamedTuple):
    """One line of the forest plot; a heading has only a label."""

    label: str
    columns: tuple[str, ...] = ()
    cell: Cell | None = None
    style: RowStyle = _GRAY
    single: bool = False


def section(context: SectionContext[Options]) -> list[Section]:
    """Return the report sections of models, their contrasts, and any replications by others.

    Raises:
        UserError: A result is missing or lacks the metric.
        DataError: The seeds were measured on different items.
    """
    rows = _rows(context)
    return [rows, _contrasts(context, rows), *_replications(context)]


def figure(context: SectionContext[Options]) -> Figure:
    """Draw published, replicated and measured differences, each with seeds, size and tokens."""
    lines = list(_lines(context))
    drawn, ((axes, side),) = subplot_grid(
        1, 2, (11, 1.5 + 0.36 * len(lines)), width_ratios=(1.6, 1), sharey=True
    )
    axes.axvline(0, color=INK, lw=0.8)
    labels = {str(row): escape_label(line.label, 42) for row, line in enumerate(lines)}
    styles = {row: line.style for row, line in zip(labels, lines, strict=True)}
    for single in (False, True):
        cells = [
            line.cell.model_copy(update={"row": row})
            for row, line in zip(labels, lines, strict=True)
            if line.cell is not None and line.single == single
        ]
        marks = cell_estimates(cells, by="row")
        draw_estimates(axes, marks, styles, labels, along="y", dodge=False, hollow=single)
    label_axes(axes, x=context.options.axis, y="", title=context.title)
    for name, line in zip(axes.get_yticklabels(), lines, strict=True):
        name.set_fontweight("normal" if line.columns else "bold")
    _write_columns(side, lines)
    handles = [
        legend_handle("mean over seeds, 95% interval if stated", line_width=1.8),
        legend_handle("one seed; for replications the lowest and highest", marker_size=2.5),
        legend_handle("only one seed, or not stated", hollow=True),
    ]
    legend_below(drawn, handles)
    return drawn


# --- sections


def _rows(context: SectionContext[Options]) -> Section:
    options = context.options
    notes = [context.training_note(), *options.notes]
    metric = MetricColumn(options.column, options.header, options.metric)
    return metric_section(context, [metric], decimals=options.decimals, notes=notes, facts=True)


def _contrasts(context: SectionContext[Options], rows: Section) -> Section:
    options, labels = context.options, _labels(context)
    cells = {pair: _difference(context, pair, rows) for pair in options.pairs}
    return Section(
        title="Contrasts",
        columns=[
            Column(id=options.column + DIFFERENCE_SUFFIX, header="Difference"),
            *(Column(id=name, header=header) for name, header in _STATISTICS.items()),
        ],
        rows=[Row(run=_pair_id(pair), label=labels[pair]) for pair in cells],
        cells=[
            cell
            for difference in cells.values()
            for cell in (difference, *_statistics_cells(difference, options.decimals))
        ],
        notes=["Paired differences, seed by seed."],
    )


def _replications(context: SectionContext[Options]) -> Iterator[Section]:
    """Yield the section of replications by others, with their numbers as they print them."""
    replications = context.section.replications
    if not replications:
        return
    cells, decimals = [], context.options.decimals
    for index, replica in enumerate(replications):
        low, high = (_format_difference(context, end) for end in (replica.low, replica.high))
        spread = _NOT_STATED if replica.low is None else f"{low} to {high}"
        sd = (
            _NOT_STATED if replica.deviation is None else format_number(replica.deviation, decimals)
        )
        difference = _format_difference(context, replica.difference)
        texts = (difference, spread, sd, *_sample_texts(replica))
        cells += [
            Cell(row=f"replication_{index}", column=column, text=text)
            for column, text in zip(_REPLICATION_COLUMNS, texts, strict=True)
        ]
    yield Section(
        title="Found by others",
        columns=[Column(id=name, header=header) for name, header in _REPLICATION_COLUMNS.items()],
        rows=[Row(run=f"replication_{i}", label=r.study) for i, r in enumerate(replications)],
        cells=cells,
        notes=[f"{r.study}: {r.note} Source: {r.source}." for r in replications]
        + [f"{_NOT_STATED}: not stated, or one seed."],
    )


def _difference(context: SectionContext[Options], pair: Pair, rows: Section) -> Cell:
    compared = ResolvedRow(run=pair.row, label="", baseline=pair.baseline)
    column, decimals = context.options.column, context.options.decimals
    (difference,) = paired_differences([compared], [column], rows.cells, decimals)
    return difference.model_copy(update={"row": _pair_id(pair)})


def _statistics_cells(mean: Cell, decimals: int) -> Iterator[Cell]:
    """Yield interval, half-width, standard deviation and seeds of a difference."""
    half = None
    texts = {"interval": UNDEFINED, "seeds": str(mean.n)}
    if mean.ci_low is not None and mean.ci_high is not None:
        texts["interval"] = (
            f"{format_signed(mean.ci_low, decimals)} to {format_signed(mean.ci_high, decimals)}"
        )
        half = (mean.ci_high - mean.ci_low) / 2
    numbers = {"half_width": half, "deviation": mean.std, "seeds": float(mean.n)}
    for column in _STATISTICS:
        value = numbers.get(column)
        text = UNDEFINED if value is None else format_number(value, decimals + 1)
        yield Cell(
            row=mean.row, column=column, text=texts.get(column, text), value=value, n=mean.n,
            seeds=mean.seeds,
        )  # fmt: skip


# --- lines of the figure


def _lines(context: SectionContext[Options]) -> Iterator[Line]:
    rows = _rows(context)
    differences = {pair: _difference(context, pair, rows) for pair in context.options.pairs}
    paper, labels = context.artifact.paper, _labels(context)
    published = {pair: cell.paper_value for pair, cell in differences.items()}
    if paper is not None and any(value is not None for value in published.values()):
        yield Line("Published")
        on = (_NOT_STATED, paper.model or _NOT_STATED, _format_tokens(paper.tokens))
        for pair, value in published.items():
            if value is not None:
                cell = Cell(row=_pair_id(pair), column="", text="", value=value)
                columns = (*on, _format_difference(context, value))
                yield Line(labels[pair], columns, cell, _GRAY, True)
    if context.section.replications:
        yield Line("Found by others")
        for replica in context.section.replications:
            columns = (*_sample_texts(replica), _format_difference(context, replica.difference))
            yield Line(
                replica.study, columns, _replication_cell(replica), _GRAY, replica.seeds == 1
            )
    yield Line(f"Here, scale {context.artifact.scale}")
    for pair, cell in differences.items():
        (row,) = (row for row in context.rows if row.run == pair.row)
        trained = context.train_results(row)[0]
        size, tokens = (
            format_count(require_metric(trained, name)) for name in ("parameters", "tokens")
        )
        columns = (str(cell.n), size, tokens, cell.text)
        unpublished = cell.model_copy(update={"paper_value": None})
        yield Line(labels[pair], columns, unpublished, context.styles[pair.row], cell.n == 1)


def _replication_cell(replica: Replication) -> Cell | None:
    """Return a replication as a cell with its interval and seeds, or None without a number."""
    if replica.difference is None:
        return None
    low, high = None, None
    if replica.deviation is not None:
        low, high = Contrast(replica.difference, replica.seeds, replica.deviation**2).interval()
    ends = [end for end in (replica.low, replica.high) if end is not None]
    return Cell(
        row=replica.study, column="", text="", value=replica.difference, ci_low=low, ci_high=high,
        seeds=[SeedValue(seed=i, value=end, text="", job_ids=[]) for i, end in enumerate(ends)],
    )  # fmt: skip


def _write_columns(side: Axes, lines: list[Line]) -> None:
    side.set_xlim(0, 1)
    side.axis("off")
    headers = (*(_REPLICATION_COLUMNS[name] for name in ("seeds", "model", "tokens")), "Difference")
    # The first line is a heading, which leaves room for those of the columns.
    for y, texts in enumerate([headers, *(line.columns for line in lines[1:])]):
        for x, text in zip((0.0, 0.2, 0.4, 0.6), texts, strict=False):
            side.text(x, y, text, va="center", color=INK if y else SOFT)


# --- words


def _pair_id(pair: Pair) -> str:
    return f"{pair.row}_minus_{pair.baseline}"


def _labels(context: SectionContext[Options]) -> dict[Pair, str]:
    names = {row.run: row.label for row in context.rows}
    return {pair: f"{names[pair.row]} − {names[pair.baseline]}" for pair in context.options.pairs}


def _format_difference(context: SectionContext[Options], value: float | None) -> str:
    return _NOT_STATED if value is None else format_signed(value, context.options.decimals)


def _format_tokens(tokens: float | None) -> str:
    return _NOT_STATED if tokens is None else format_count(tokens)


def _sample_texts(replica: Replication) -> tuple[str, str, str]:
    return str(replica.seeds), replica.model, _format_tokens(replica.tokens)
