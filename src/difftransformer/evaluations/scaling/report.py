"""Loss by size or tokens, curves fitted to it, and where two rows have equal loss."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.config.evaluation import Fact
from difftransformer.config.papers import PaperTable
from difftransformer.evaluations.scaling.curves import (
    BEYOND,
    COUNTS,
    DECIMALS,
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
from difftransformer.evaluations.scaling.power_law import Reading
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
_FITTED = {"exponent": "b", "offset": "c", "factor": "a", "residual": "residual"}
"""Columns of a curve, each with its field of `PowerLaw`."""
_NOTHING = Paper(None)
_WRITE = partial(plain, decimals=DECIMALS)


def section(view: View[Options]) -> list[Section]:
    """Make the sections: measured points, curves through them, and the published points' curves."""
    curves, paper = Curves(view), view.artifact.paper
    sections = [_points(view, curves), _fitted(view, curves)]
    if paper is not None and paper.series:
        sections.append(_published(view, paper))
    return sections


def _points(view: View[Options], curves: Curves) -> Section:
    """One row a point; rows of the artifact stand together at each size or budget."""
    rows, cells = [], []
    for together in zip(*(line.points for line in curves.lines), strict=True):
        named = {line.family.run: point for line, point in zip(curves.lines, together, strict=True)}
        for line in curves.lines:
            family, point = line.family, named[line.family.run]
            against = None if family.against is None else named[family.against].row
            label = f"{family.label}, {count(point.x)}"
            rows.append(RowSlice(run=point.row, label=label, against=against))
            cells += _about(view, point)
            cells.append(mean_cell(Place(point.row, "loss"), point.seeds, DECIMALS, _NOTHING))
            if against is not None:
                cells += equal_loss_cells(point.row, "at_equal", point.x, family, curves)
    columns = {"tokens": "Tokens"}
    if view.options.by == "size":
        sizes = {f"parameters_{key}": f"Parameters, {words}" for key, words in COUNTS.items()}
        columns = _SHAPE | {"learning_rate": "lr"} | sizes
    columns |= {"loss": "Loss ↓", "loss" + DIFFERENCE: "Δ Loss"}
    cells += paired_differences(rows, ["loss"], cells, DECIMALS)
    shown = [Column(id=key, header=header) for key, header in columns.items()]
    shown += _equal_columns(view, "at_equal")
    return section_of(view, shown, cells, _point_notes(view), rows=rows)


def _about(view: View[Options], point: Point) -> list[Cell]:
    """What a point is: tokens, or the shape and size of the model; nothing is measured."""
    row = next(row for row in view.rows if row.run == point.run)
    trained = view.trained(row)

    def fact(column: str, value: Fact, write: Callable[[Any], str] = fact_text) -> Cell:
        return fact_cell(Place(point.row, column), value, trained, _NOTHING, write)

    if view.options.by == "tokens":
        return [fact("tokens", point.x, count)]
    lr = float(trained[0].settings["training"]["lr"])
    return [
        *(fact(key, row.facts.get(key)) for key in _SHAPE),
        fact("learning_rate", lr, rate),
        *(fact(f"parameters_{key}", parameters(trained[0], key), count) for key in COUNTS),
    ]


def _equal_columns(view: View[Options], prefix: str) -> list[Column]:
    labels = {family.run: family.label for family in view.part.families}
    others = {labels[family.against] for family in view.part.families if family.against}
    if not others:
        return []
    other = others.pop() if len(others) == 1 else "The other"
    return [
        Column(id=f"{prefix}_x", header=f"{other}: {view.options.by} of equal loss"),
        Column(id=f"{prefix}_ratio", header="Share needed"),
        Column(id=f"{prefix}_beyond", header="beyond the measured range", tidy_only=True),
    ]


def _curve_columns(view: View[Options]) -> list[Column]:
    return [
        Column(id="exponent", header="Exponent b"),
        Column(id="offset", header="Offset c"),
        Column(id="factor", header="a", tidy_only=True),
        Column(id="residual", header="rms residual in log loss", tidy_only=True),
        Column(id="largest_loss", header="Loss at the largest ↓"),
        Column(id="largest_loss" + DIFFERENCE, header="Δ Loss at the largest"),
        Column(id="read_x", header="Read at"),
        *_equal_columns(view, "equal"),
    ]


def _fitted(view: View[Options], curves: Curves) -> Section:
    """One row a curve: what was fitted, the loss at its end, and its reading of equal loss."""
    cells = [cell for line in curves.lines for cell in _curve_cells(line, curves)]
    for family, points in curves.lines:
        place = Place(family.run, "largest_loss")
        cells.append(mean_cell(place, points[-1].seeds, DECIMALS, _NOTHING))
        if family.against is not None:
            x = curves.read_at(family.run)
            cells.append(Cell(row=family.run, column="read_x", text=count(x), value=x))
            cells += equal_loss_cells(family.run, "equal", x, family, curves)
    rows = view.part.families
    cells += paired_differences(rows, ["largest_loss"], cells, DECIMALS)
    notes = _curve_notes(view.options, curves.lines)
    return section_of(view, _curve_columns(view), cells, notes, title="Fitted curves", rows=rows)


def _curve_cells(line: Line, curves: Curves) -> Iterator[Cell]:
    run = line.family.run
    for column, field in _FITTED.items():

        def statistic(sample: Sample, field: str = field) -> float:
            return float(getattr(curves.curve(run, sample), field))

        yield estimate_cell(Place(run, column), statistic, curves, [run], _WRITE)


def _published(view: View[Options], paper: PaperTable) -> Section:
    """One row a published curve, and one a ratio that the paper states."""
    curves, readings = published_fits(view, paper)
    rows = [
        Row(run=f"published_{run}", label=f"Published points, {paper.series[run].label}")
        for run in curves
    ]
    rows += [Row(run=row, label=f"Published, {paper.rows[row].label}") for row in readings]
    cells = [
        fact_cell(Place(f"published_{run}", column), getattr(curve, field), [], _NOTHING, _WRITE)
        for run, curve in curves.items()
        for column, field in _FITTED.items()
    ]
    for row, (_, reading) in readings.items():
        cells += _stated(row, reading, Paper(paper))
    return Section(
        title="The same fit of the published points",
        columns=[one for one in _curve_columns(view) if not one.id.startswith("largest")],
        rows=rows,
        cells=cells,
        notes=["Fitted by us; in brackets what the paper states of its own fit."],
    )


def _stated(row: str, reading: Reading, paper: Paper) -> list[Cell]:
    """A reading of the published points beside what the paper states."""
    numbers: dict[str, tuple[Fact, Callable[[Any], str]]] = {
        "read_x": (reading.x, count),
        "equal_x": (reading.equal_x, count),
        "equal_ratio": (reading.ratio, _WRITE),
        "equal_beyond": (reading.beyond is not None, fact_text),
    }
    cells = [
        fact_cell(Place(row, column), value, [], paper, write)
        for column, (value, write) in numbers.items()
    ]
    return [one.model_copy(update={"text": BEYOND}) if one.value is None else one for one in cells]


def _point_notes(view: View[Options]) -> list[str]:
    """Say what the points are."""
    if view.options.by == "tokens":
        return [view.training_note()]
    tokens = defined(view.evaluated()[0], "tokens")
    budgets = [defined(result, "tokens") for result in view.trained()]
    return [
        f"Over {count(tokens)} held-out tokens in windows of {view.suite.seq_len}.",
        f"Training: {span(budgets)} tokens a run, with the peak learning rate in the column lr.",
    ]


def _curve_notes(options: Options, lines: Sequence[Line]) -> list[str]:
    """Say what was fitted, and where it is read."""
    form = (
        f"a x^−b + c with c ≥ 0, as there are {OFFSET_FROM} points or more"
        if options.has_offset(len(lines[0].points))
        else f"a x^−b, without an offset c, as it takes {OFFSET_FROM} points"
    )
    what = "size" if options.by == "size" else "budget"
    return [
        f"Fit: loss = {form}; least squares in log loss, of the means over seeds. Each curve is "
        f"read at {options.read_at:.0%} of its largest {what}."
    ]
