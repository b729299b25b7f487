"""Contrasts as a table, and as a forest plot with the paper's and what others found of them."""

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

_OURS = {
    "interval": "95% interval", "half_width": "Half-width", "deviation": "Deviation over seeds",
    "seeds": "Seeds",
}  # fmt: skip
_THEIRS = {
    "difference": "Difference", "spread": "Lowest to highest seed",
    "deviation": "Deviation over seeds", "seeds": "Seeds", "model": "Model", "tokens": "Tokens",
}  # fmt: skip
_UNKNOWN = "–"
_GREY = RowStyle(SOFT, (), "s")


class Line(NamedTuple):
    """A line of the forest plot, or its heading, which has a label alone."""

    label: str
    columns: tuple[str, ...] = ()
    cell: Cell | None = None
    look: RowStyle = _GREY
    single: bool = False


def section(context: SectionContext[Options]) -> list[Section]:
    """Make the sections: rows, their contrasts, and what others found where that is asked.

    Raises:
        UserError: A result is missing or lacks the metric.
        DataError: Seeds were asked different things.
    """
    rows = _rows(context)
    return [rows, _contrasts(context, rows), *_replicated(context)]


def figure(context: SectionContext[Options]) -> Figure:
    """Draw published differences, those of others and ours, with what each was found on."""
    lines = list(_lines(context))
    drawn, ((axes, side),) = subplot_grid(
        1, 2, (11, 1.5 + 0.36 * len(lines)), width_ratios=(1.6, 1), sharey=True
    )
    axes.axvline(0, color=INK, lw=0.8)
    places = {str(place): escape_label(line.label, 42) for place, line in enumerate(lines)}
    look = {place: line.look for place, line in zip(places, lines, strict=True)}
    for single in (False, True):
        cells = [
            line.cell.model_copy(update={"row": place})
            for place, line in zip(places, lines, strict=True)
            if line.cell is not None and line.single == single
        ]
        found = cell_estimates(cells, by="row")
        draw_estimates(axes, found, look, places, along="y", dodge=False, hollow=single)
    label_axes(axes, x=context.options.axis, y="", title=context.title)
    for name, line in zip(axes.get_yticklabels(), lines, strict=True):
        name.set_fontweight("normal" if line.columns else "bold")
    _write_columns(side, lines)
    signs = [
        legend_handle("mean over seeds, 95% interval where known", line_width=1.8),
        legend_handle("one seed; of others the lowest and highest", marker_size=2.5),
        legend_handle("one seed alone, or not stated", hollow=True),
    ]
    legend_below(drawn, signs)
    return drawn


# --- sections


def _rows(context: SectionContext[Options]) -> Section:
    options = context.options
    notes = [context.training_note(), *options.notes]
    metric = MetricColumn(options.column, options.header, options.metric)
    return metric_section(context, [metric], decimals=options.decimals, notes=notes, facts=True)


def _contrasts(context: SectionContext[Options], rows: Section) -> Section:
    options, labels = context.options, _labels(context)
    found = {pair: _difference(context, pair, rows) for pair in options.pairs}
    return Section(
        title="Contrasts",
        columns=[
            Column(id=options.column + DIFFERENCE_SUFFIX, header="Difference"),
            *(Column(id=name, header=header) for name, header in _OURS.items()),
        ],
        rows=[Row(run=_id(pair), label=labels[pair]) for pair in found],
        cells=[cell for one in found.values() for cell in (one, *_about(one, options.decimals))],
        notes=["Paired differences, seed by seed."],
    )


def _replicated(context: SectionContext[Options]) -> Iterator[Section]:
    """What others found, as they print it: no number of ours, and none that ours depend on."""
    found = context.section.replications
    if not found:
        return
    cells, decimals = [], context.options.decimals
    for index, one in enumerate(found):
        low, high = (_number(context, end) for end in (one.low, one.high))
        spread = _UNKNOWN if one.low is None else f"{low} to {high}"
        deviation = _UNKNOWN if one.deviation is None else format_number(one.deviation, decimals)
        texts = (_number(context, one.difference), spread, deviation, *_found_on(one))
        cells += [
            Cell(row=f"replication_{index}", column=column, text=text)
            for column, text in zip(_THEIRS, texts, strict=True)
        ]
    yield Section(
        title="Found by others",
        columns=[Column(id=name, header=header) for name, header in _THEIRS.items()],
        rows=[Row(run=f"replication_{i}", label=one.study) for i, one in enumerate(found)],
        cells=cells,
        notes=[f"{one.study}: {one.note} Source: {one.source}." for one in found]
        + [f"{_UNKNOWN}: not stated, or one seed."],
    )


def _difference(context: SectionContext[Options], pair: Pair, rows: Section) -> Cell:
    compared = ResolvedRow(run=pair.row, label="", baseline=pair.baseline)
    column, decimals = context.options.column, context.options.decimals
    (found,) = paired_differences([compared], [column], rows.cells, decimals)
    return found.model_copy(update={"row": _id(pair)})


def _about(mean: Cell, decimals: int) -> Iterator[Cell]:
    """What stands beside a difference, with the jobs behind it."""
    half = None
    texts = {"interval": UNDEFINED, "seeds": str(mean.n)}
    if mean.ci_low is not None and mean.ci_high is not None:
        texts["interval"] = (
            f"{format_signed(mean.ci_low, decimals)} to {format_signed(mean.ci_high, decimals)}"
        )
        half = (mean.ci_high - mean.ci_low) / 2
    numbers = {"half_width": half, "deviation": mean.std, "seeds": float(mean.n)}
    for column in _OURS:
        value = numbers.get(column)
        text = UNDEFINED if value is None else format_number(value, decimals + 1)
        yield Cell(
            row=mean.row, column=column, text=texts.get(column, text), value=value, n=mean.n,
            seeds=mean.seeds,
        )  # fmt: skip


# --- lines of the figure


def _lines(context: SectionContext[Options]) -> Iterator[Line]:
    rows = _rows(context)
    found = {pair: _difference(context, pair, rows) for pair in context.options.pairs}
    paper, labels = context.artifact.paper, _labels(context)
    published = {pair: cell.paper_value for pair, cell in found.items()}
    if paper is not None and any(value is not None for value in published.values()):
        yield Line("Published")
        on = (_UNKNOWN, paper.model or _UNKNOWN, _tokens(paper.tokens))
        for pair, value in published.items():
            if value is not None:
                cell = Cell(row=_id(pair), column="", text="", value=value)
                yield Line(labels[pair], (*on, _number(context, value)), cell, _GREY, True)
    if context.section.replications:
        yield Line("Found by others")
        for one in context.section.replications:
            columns = (*_found_on(one), _number(context, one.difference))
            yield Line(one.study, columns, _replication_cell(one), _GREY, one.seeds == 1)
    yield Line(f"Here, scale {context.artifact.scale}")
    for pair, cell in found.items():
        (row,) = (row for row in context.rows if row.run == pair.row)
        trained = context.train_results(row)[0]
        size, tokens = (
            format_count(require_metric(trained, name)) for name in ("parameters", "tokens")
        )
        label = labels[pair]
        columns = (str(cell.n), size, tokens, cell.text)
        shown = cell.model_copy(update={"paper_value": None})
        yield Line(label, columns, shown, context.styles[pair.row], cell.n == 1)


def _replication_cell(one: Replication) -> Cell | None:
    """A replication as a mean with what is known of its seeds; None: it has no number."""
    if one.difference is None:
        return None
    low, high = None, None
    if one.deviation is not None:
        low, high = Contrast(one.difference, one.seeds, one.deviation**2).interval()
    ends = [end for end in (one.low, one.high) if end is not None]
    return Cell(
        row=one.study, column="", text="", value=one.difference, ci_low=low, ci_high=high,
        seeds=[SeedValue(seed=i, value=end, text="", job_ids=[]) for i, end in enumerate(ends)],
    )  # fmt: skip


def _write_columns(side: Axes, lines: list[Line]) -> None:
    side.set_xlim(0, 1)
    side.axis("off")
    headers = (*(_THEIRS[name] for name in ("seeds", "model", "tokens")), "Difference")
    # The first line is a heading, so that there is room for theirs.
    for place, texts in enumerate([headers, *(line.columns for line in lines[1:])]):
        for x, text in zip((0.0, 0.2, 0.4, 0.6), texts, strict=False):
            side.text(x, place, text, va="center", color=INK if place else SOFT)


# --- words


def _id(pair: Pair) -> str:
    return f"{pair.row}_minus_{pair.baseline}"


def _labels(context: SectionContext[Options]) -> dict[Pair, str]:
    names = {row.run: row.label for row in context.rows}
    return {pair: f"{names[pair.row]} − {names[pair.baseline]}" for pair in context.options.pairs}


def _number(context: SectionContext[Options], value: float | None) -> str:
    return _UNKNOWN if value is None else format_signed(value, context.options.decimals)


def _tokens(tokens: float | None) -> str:
    return _UNKNOWN if tokens is None else format_count(tokens)


def _found_on(one: Replication) -> tuple[str, str, str]:
    return str(one.seeds), one.model, _tokens(one.tokens)
