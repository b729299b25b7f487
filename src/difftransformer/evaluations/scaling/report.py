"""Tables of loss by size or tokens, of fitted curves, and of where two models have equal loss."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.config.evaluation import Fact
from difftransformer.config.papers import PaperTable
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
    DIFFERENCE,
    Paper,
    Place,
    fact_cell,
    fact_text,
    mean_cell,
    paired_differences,
)
from difftransformer.reporting.collect import defined
from difftransformer.reporting.conditions import span
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.numbers import count, plain, rate
from difftransformer.reporting.sections import section_of
from difftransformer.reporting.view import View

__all__ = ["figure", "section"]

_SHAPE = {"d_model": "Width", "layers": "Layers", "heads": "Heads", "head_dim": "d"}
_CURVE_FIELDS = {"exponent": "b", "offset": "c", "factor": "a", "residual": "residual"}
"""Column -> field of `PowerLaw`."""
_NO_PAPER = Paper(None)
_WRITE = partial(plain, decimals=DECIMALS)


def section(view: View[Options]) -> list[Section]:
    """Return the sections of measured points, their curves, and the curves of published points."""
    curves, paper = Curves(view), view.artifact.paper
    sections = [_points(view, curves), _fitted(view, curves)]
    if paper is not None and paper.series:
        sections.append(_published(view, paper))
    return sections


def _points(view: View[Options], curves: Curves) -> Section:
    """Return the section with one row per point, sorted by size or budget."""
    rows, cells = [], []
    for points in zip(*(line.points for line in curves.lines), strict=True):
        by_run = {line.family.run: point for line, point in zip(curves.lines, points, strict=True)}
        for line in curves.lines:
            family, point = line.family, by_run[line.family.run]
            against = None if family.against is None else by_run[family.against].row
            label = f"{family.label}, {count(point.x)}"
            rows.append(RowSlice(run=point.row, label=label, against=against))
            cells += _point_facts(view, point)
            cells.append(mean_cell(Place(point.row, "loss"), point.seeds, DECIMALS, _NO_PAPER))
            if against is not None:
                cells += equal_loss_cells(point.row, "point_equal_loss", point.x, family, curves)
    columns = {"tokens": "Tokens"}
    if view.options.by == "size":
        sizes = {f"parameters_{key}": f"Parameters, {words}" for key, words in COUNTS.items()}
        columns = _SHAPE | {"learning_rate": "lr"} | sizes
    columns |= {"loss": "Loss ↓", "loss" + DIFFERENCE: "Δ Loss"}
    cells += paired_differences(rows, ["loss"], cells, DECIMALS)
    printed = [Column(id=key, header=header) for key, header in columns.items()]
    printed += _equal_loss_columns(view, "point_equal_loss")
    return section_of(view, printed, cells, _point_notes(view), rows=rows)


def _point_facts(view: View[Options], point: Point) -> list[Cell]:
    """Return the cells of a point's tokens, or of its model's shape, size and learning rate."""
    row = next(row for row in view.rows if row.run == point.run)
    trained = view.trained(row)

    def fact(column: str, value: Fact, write: Callable[[Any], str] = fact_text) -> Cell:
        return fact_cell(Place(point.row, column), value, trained, _NO_PAPER, write)

    if view.options.by == "tokens":
        return [fact("tokens", point.x, count)]
    lr = float(trained[0].settings["training"]["lr"])
    return [
        *(fact(key, row.facts.get(key)) for key in _SHAPE),
        fact("learning_rate", lr, rate),
        *(fact(f"parameters_{key}", parameters(trained[0], key), count) for key in COUNTS),
    ]


def _equal_loss_columns(view: View[Options], prefix: str) -> list[Column]:
    labels = {family.run: family.label for family in view.part.families}
    baselines = {labels[family.against] for family in view.part.families if family.against}
    if not baselines:
        return []
    baseline = baselines.pop() if len(baselines) == 1 else "Baseline"
    return [
        Column(id=f"{prefix}_x", header=f"{baseline}: {view.options.by} of equal loss"),
        Column(id=f"{prefix}_ratio", header="Fraction needed"),
        Column(id=f"{prefix}_out_of_range", header=OUT_OF_RANGE, tidy_only=True),
    ]


def _curve_columns(view: View[Options]) -> list[Column]:
    return [
        Column(id="exponent", header="Exponent b"),
        Column(id="offset", header="Offset c"),
        Column(id="factor", header="a", tidy_only=True),
        Column(id="residual", header="rms residual in log loss", tidy_only=True),
        Column(id="loss_at_largest", header="Loss at the largest ↓"),
        Column(id="loss_at_largest" + DIFFERENCE, header="Δ Loss at the largest"),
        Column(id="compare_x", header="Compared at"),
        *_equal_loss_columns(view, "equal_loss"),
    ]


def _fitted(view: View[Options], curves: Curves) -> Section:
    """Return the section with one row per curve: its parameters, its last loss, equal loss."""
    cells = [cell for line in curves.lines for cell in _curve_cells(line, curves)]
    for family, points in curves.lines:
        key = Place(family.run, "loss_at_largest")
        cells.append(mean_cell(key, points[-1].seeds, DECIMALS, _NO_PAPER))
        if family.against is not None:
            x = curves.compare_x(family.run)
            cells.append(Cell(row=family.run, column="compare_x", text=count(x), value=x))
            cells += equal_loss_cells(family.run, "equal_loss", x, family, curves)
    rows = view.part.families
    cells += paired_differences(rows, ["loss_at_largest"], cells, DECIMALS)
    notes = _curve_notes(view.options, curves.lines)
    return section_of(view, _curve_columns(view), cells, notes, title="Fitted curves", rows=rows)


def _curve_cells(line: Line, curves: Curves) -> Iterator[Cell]:
    run = line.family.run
    for column, field in _CURVE_FIELDS.items():

        def statistic(sample: Sample, field: str = field) -> float:
            return float(getattr(curves.curve(run, sample), field))

        yield estimate_cell(Place(run, column), statistic, curves, [run], _WRITE)


def _published(view: View[Options], paper: PaperTable) -> Section:
    """Return the section with one row per published curve, and one per ratio the paper states."""
    curves, equal_losses = published_fits(view, paper)
    rows = [
        Row(run=f"published_{run}", label=f"Published points, {paper.series[run].label}")
        for run in curves
    ]
    rows += [Row(run=row, label=f"Published, {paper.rows[row].label}") for row in equal_losses]
    cells = [
        fact_cell(Place(f"published_{run}", column), getattr(curve, field), [], _NO_PAPER, _WRITE)
        for run, curve in curves.items()
        for column, field in _CURVE_FIELDS.items()
    ]
    for row, (_, equal) in equal_losses.items():
        cells += _published_cells(row, equal, Paper(paper))
    return Section(
        title="The same fit of the published points",
        columns=[
            column for column in _curve_columns(view) if not column.id.startswith("loss_at_largest")
        ],
        rows=rows,
        cells=cells,
        notes=["Our fit; in brackets the values that the paper states for its own fit."],
    )


def _published_cells(row: str, equal: EqualLoss, paper: Paper) -> list[Cell]:
    """Return the cells of equal loss of the published points, with the paper's own values."""
    values: dict[str, tuple[Fact, Callable[[Any], str]]] = {
        "compare_x": (equal.x, count),
        "equal_loss_x": (equal.equal_x, count),
        "equal_loss_ratio": (equal.ratio, _WRITE),
        "equal_loss_out_of_range": (equal.out_of_range is not None, fact_text),
    }
    cells = [
        fact_cell(Place(row, column), value, [], paper, write)
        for column, (value, write) in values.items()
    ]
    return [
        cell.model_copy(update={"text": OUT_OF_RANGE}) if cell.value is None else cell
        for cell in cells
    ]


def _point_notes(view: View[Options]) -> list[str]:
    """Return the notes about the points."""
    if view.options.by == "tokens":
        return [view.training_note()]
    tokens = defined(view.evaluated()[0], "tokens")
    budgets = [defined(result, "tokens") for result in view.trained()]
    return [
        f"Over {count(tokens)} held-out tokens in windows of {view.suite.seq_len}.",
        f"Training: {span(budgets)} tokens per run; column lr is the peak learning rate.",
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
