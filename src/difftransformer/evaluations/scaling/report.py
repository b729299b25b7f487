"""Tables of loss by model size or tokens, of fitted curves, and of points of equal loss."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from difftransformer.config.evaluation import Fact
from difftransformer.config.papers import PaperTable
from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.evaluations.scaling.curves import (
    COUNTS,
    DECIMALS,
    OUT_OF_RANGE,
    Curves,
    Line,
    Point,
    Sample,
    equal_loss_cells,
    estimate_cell,
    parameters,
    published_fits,
)
from difftransformer.evaluations.scaling.figure import figure
from difftransformer.evaluations.scaling.power_law import EqualLoss
from difftransformer.evaluations.scaling.settings import OFFSET_FROM, Options
from difftransformer.reporting.cells import (
    DIFFERENCE_SUFFIX,
    CellKey,
    PublishedValues,
    fact_cell,
    fact_text,
    mean_cell,
    paired_differences,
)
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.number_format import (
    format_count,
    format_learning_rate,
    format_number,
)
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import make_section
from difftransformer.reporting.table_notes import format_range

__all__ = ["figure", "section"]

_SHAPE = {"d_model": "Width", "layers": "Layers", "heads": "Heads", "head_dim": "d"}
_CURVE_FIELDS = {"exponent": "b", "offset": "c", "factor": "a", "residual": "residual"}
"""Column -> field of `PowerLaw` that it shows."""
_NO_PAPER = PublishedValues(None)
_WRITE = partial(format_number, decimals=DECIMALS)


def section(context: SectionContext[Options]) -> list[Section]:
    """Return the report sections of measured points, of fitted curves, and of published points."""
    curves, paper = Curves(context), context.artifact.paper
    sections = [_points(context, curves), _fitted(context, curves)]
    if paper is not None and paper.series:
        sections.append(_published(context, paper))
    return sections


def _points(context: SectionContext[Options], curves: Curves) -> Section:
    """Return the section with one row per point, sorted by size or budget."""
    rows, cells = [], []
    for points in zip(*(line.points for line in curves.lines), strict=True):
        by_run = {
            line.grid_row.run: point for line, point in zip(curves.lines, points, strict=True)
        }
        for line in curves.lines:
            grid_row, point = line.grid_row, by_run[line.grid_row.run]
            baseline = None if grid_row.baseline is None else by_run[grid_row.baseline].row
            label = f"{grid_row.label}, {format_count(point.x)}"
            rows.append(ResolvedRow(run=point.row, label=label, baseline=baseline))
            cells += _point_facts(context, point)
            cells.append(mean_cell(CellKey(point.row, "loss"), point.seeds, DECIMALS, _NO_PAPER))
            if baseline is not None:
                cells += equal_loss_cells(point.row, "point_equal_loss", point.x, grid_row, curves)
    columns = {"tokens": "Tokens"}
    if context.options.by == "size":
        sizes = {f"parameters_{key}": f"Parameters, {words}" for key, words in COUNTS.items()}
        columns = _SHAPE | {"learning_rate": "lr"} | sizes
    columns |= {"loss": "Loss ↓", "loss" + DIFFERENCE_SUFFIX: "Δ Loss"}
    cells += paired_differences(rows, ["loss"], cells, DECIMALS)
    printed = [Column(id=key, header=header) for key, header in columns.items()]
    printed += _equal_loss_columns(context, "point_equal_loss")
    return make_section(context, printed, cells, _point_notes(context), rows=rows)


def _point_facts(context: SectionContext[Options], point: Point) -> list[Cell]:
    """Return the cells of a point's tokens, or of its model's shape, size and learning rate."""
    row = next(row for row in context.rows if row.run == point.run)
    trained = context.train_results(row)

    def fact(column: str, value: Fact, write: Callable[[Any], str] = fact_text) -> Cell:
        return fact_cell(CellKey(point.row, column), value, trained, _NO_PAPER, write)

    if context.options.by == "tokens":
        return [fact("tokens", point.x, format_count)]
    lr = float(trained[0].settings["training"]["lr"])
    return [
        *(fact(key, row.facts.get(key)) for key in _SHAPE),
        fact("learning_rate", lr, format_learning_rate),
        *(fact(f"parameters_{key}", parameters(trained[0], key), format_count) for key in COUNTS),
    ]


def _equal_loss_columns(context: SectionContext[Options], prefix: str) -> list[Column]:
    labels = {grid_row.run: grid_row.label for grid_row in context.section.grid_rows}
    baselines = {
        labels[grid_row.baseline] for grid_row in context.section.grid_rows if grid_row.baseline
    }
    if not baselines:
        return []
    baseline = baselines.pop() if len(baselines) == 1 else "Baseline"
    return [
        Column(id=f"{prefix}_x", header=f"{baseline}: {context.options.by} of equal loss"),
        Column(id=f"{prefix}_ratio", header="Fraction needed"),
        Column(id=f"{prefix}_out_of_range", header=OUT_OF_RANGE, csv_only=True),
    ]


def _curve_columns(context: SectionContext[Options]) -> list[Column]:
    return [
        Column(id="exponent", header="Exponent b"),
        Column(id="offset", header="Offset c"),
        Column(id="factor", header="a", csv_only=True),
        Column(id="residual", header="rms residual in log loss", csv_only=True),
        Column(id="loss_at_largest", header="Loss at the largest ↓"),
        Column(id="loss_at_largest" + DIFFERENCE_SUFFIX, header="Δ Loss at the largest"),
        Column(id="compare_x", header="Compared at"),
        *_equal_loss_columns(context, "equal_loss"),
    ]


def _fitted(context: SectionContext[Options], curves: Curves) -> Section:
    """Return the section with one row per curve: its parameters, its last loss, equal loss."""
    cells = [cell for line in curves.lines for cell in _curve_cells(line, curves)]
    for grid_row, points in curves.lines:
        key = CellKey(grid_row.run, "loss_at_largest")
        cells.append(mean_cell(key, points[-1].seeds, DECIMALS, _NO_PAPER))
        if grid_row.baseline is not None:
            x = curves.compare_x(grid_row.run)
            cells.append(Cell(row=grid_row.run, column="compare_x", text=format_count(x), value=x))
            cells += equal_loss_cells(grid_row.run, "equal_loss", x, grid_row, curves)
    rows = context.section.grid_rows
    cells += paired_differences(rows, ["loss_at_largest"], cells, DECIMALS)
    notes = _curve_notes(context.options, curves.lines)
    return make_section(
        context, _curve_columns(context), cells, notes, title="Fitted curves", rows=rows
    )


def _curve_cells(line: Line, curves: Curves) -> Iterator[Cell]:
    run = line.grid_row.run
    for column, field in _CURVE_FIELDS.items():

        def statistic(sample: Sample, field: str = field) -> float:
            return float(getattr(curves.curve(run, sample), field))

        yield estimate_cell(CellKey(run, column), statistic, curves, [run], _WRITE)


def _published(context: SectionContext[Options], paper: PaperTable) -> Section:
    """Return the section with one row per published curve, and one per ratio the paper states."""
    curves, equal_losses = published_fits(context, paper)
    rows = [
        Row(run=f"published_{run}", label=f"Published points, {paper.series[run].label}")
        for run in curves
    ]
    rows += [Row(run=row, label=f"Published, {paper.rows[row].label}") for row in equal_losses]
    cells = [
        fact_cell(CellKey(f"published_{run}", column), getattr(curve, field), [], _NO_PAPER, _WRITE)
        for run, curve in curves.items()
        for column, field in _CURVE_FIELDS.items()
    ]
    for row, (_, equal) in equal_losses.items():
        cells += _published_cells(row, equal, PublishedValues(paper))
    return Section(
        title="The same fit of the published points",
        columns=[
            column
            for column in _curve_columns(context)
            if not column.id.startswith("loss_at_largest")
        ],
        rows=rows,
        cells=cells,
        notes=["Our fit; in brackets the values that the paper states for its own fit."],
    )


def _published_cells(row: str, equal: EqualLoss, paper: PublishedValues) -> list[Cell]:
    """Return the cells of equal loss of the published points, with the paper's own values."""
    values: dict[str, tuple[Fact, Callable[[Any], str]]] = {
        "compare_x": (equal.x, format_count),
        "equal_loss_x": (equal.equal_x, format_count),
        "equal_loss_ratio": (equal.ratio, _WRITE),
        "equal_loss_out_of_range": (equal.out_of_range is not None, fact_text),
    }
    cells = [
        fact_cell(CellKey(row, column), value, [], paper, write)
        for column, (value, write) in values.items()
    ]
    return [
        cell.model_copy(update={"text": OUT_OF_RANGE}) if cell.value is None else cell
        for cell in cells
    ]


def _point_notes(context: SectionContext[Options]) -> list[str]:
    """Return the notes about the points."""
    if context.options.by == "tokens":
        return [context.training_note()]
    tokens = require_metric(context.eval_results()[0], "tokens")
    budgets = [require_metric(result, "tokens") for result in context.train_results()]
    return [
        f"Over {format_count(tokens)} held-out tokens in windows of {context.suite.seq_len}.",
        f"Training: {format_range(budgets)} tokens per run; column lr is the peak learning rate.",
    ]


def _curve_notes(options: Options, lines: Sequence[Line]) -> list[str]:
    """Return the notes about the fit and where curves are compared."""
    form = (
        f"a x^−b + c with c ≥ 0 (from {OFFSET_FROM} points on)"
        if options.has_offset(len(lines[0].points))
        else f"a x^−b without an offset c, which needs {OFFSET_FROM} points"
    )
    axis = "size" if options.by == "size" else "budget"
    return [
        f"Fit: loss = {form}; least squares in log loss of the means over seeds. Curves are "
        f"compared at {options.compare_at:.0%} of the largest {axis}."
    ]
