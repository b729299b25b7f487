"""Loss by size or tokens, curves fitted to it, and where two rows have equal loss."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.config.papers import PaperTable
from difftransformer.measurements.scaling.curves import (
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
from difftransformer.measurements.scaling.figure import figure
from difftransformer.measurements.scaling.power_law import PowerLaw, Reading
from difftransformer.measurements.scaling.settings import Options
from difftransformer.reporting.cells import (
    DIFFERENCE,
    Paper,
    Place,
    fact_cell,
    mean_cell,
    paired_differences,
)
from difftransformer.reporting.collect import defined
from difftransformer.reporting.conditions import span
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.numbers import count, plain, rate
from difftransformer.reporting.view import View

__all__ = ["figure", "section"]

_SHAPE = {"d_model": "Width", "layers": "Layers", "heads": "Heads", "head_dim": "d"}
_FITTED = {"exponent": "b", "offset": "c", "factor": "a", "residual": "residual"}
"""Columns of a curve, each with its field of `PowerLaw`."""
_NOTHING = Paper(None)
_WRITE = partial(plain, decimals=DECIMALS)
_COUNTED = {
    "one_embedding": "all parameters but the vocabulary matrices, and one of these, as the "
    "published sizes do, so that tying them changes nothing",
    "non_embedding": "all parameters but the vocabulary matrices",
    "total": "all parameters",
}


def section(view: View[Options]) -> list[Section]:
    """Make the sections: measured points, curves through them, and the published points' curves.

    Raises:
        UserError: a result or a history is missing.
        DataError: a history is too short for a curve, or rows differ in their points.
    """
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
    return Section(
        title=view.title,
        columns=[
            *(Column(id=key, header=header) for key, header in columns.items()),
            *_equal_columns(view, "at_equal"),
        ],
        rows=[Row(run=row.run, label=row.label) for row in rows],
        cells=cells + paired_differences(rows, ["loss"], cells, DECIMALS),
        notes=_point_notes(view),
    )


def _about(view: View[Options], point: Point) -> list[Cell]:
    """What a point is: tokens, or the shape and size of the model; nothing is measured."""
    row = next(row for row in view.rows if row.run == point.run)
    trained = view.trained(row)

    def fact(column: str, value: float, text: str) -> Cell:
        cell = fact_cell(Place(point.row, column), value, trained, _NOTHING)
        return cell.model_copy(update={"text": text})

    if view.options.by == "tokens":
        return [fact("tokens", point.x, count(point.x))]
    cells = [
        fact_cell(Place(point.row, key), row.facts.get(key), trained, _NOTHING) for key in _SHAPE
    ]
    lr = float(trained[0].settings["training"]["lr"])
    cells.append(fact("learning_rate", lr, rate(lr)))
    sizes = {key: parameters(trained[0], key) for key in COUNTS}
    return cells + [fact(f"parameters_{key}", size, count(size)) for key, size in sizes.items()]


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
    rows = [
        RowSlice(run=family.run, label=family.label, against=family.against)
        for family in view.part.families
    ]
    return Section(
        title="Fitted curves",
        columns=_curve_columns(view),
        rows=[Row(run=row.run, label=row.label) for row in rows],
        cells=cells + paired_differences(rows, ["largest_loss"], cells, DECIMALS),
        notes=_curve_notes(view.options, curves.lines),
    )


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
        *(cell for run, curve in curves.items() for cell in _published_curve(run, curve)),
        *(cell for row, (_, one) in readings.items() for cell in _stated(row, one, paper)),
    ]
    return Section(
        title="The same fit of the published points",
        columns=[one for one in _curve_columns(view) if not one.id.startswith("largest")],
        rows=rows,
        cells=cells,
        notes=[
            "Fitted by us to the published points; in brackets what the paper states of its own "
            "fit. It does not say how it fitted: the curves here, read at the sizes or budgets it "
            "names, are our reconstruction."
        ],
    )


def _published_curve(run: str, curve: PowerLaw) -> list[Cell]:
    values = {column: getattr(curve, field) for column, field in _FITTED.items()}
    return [
        Cell(row=f"published_{run}", column=column, text=_WRITE(value), value=value)
        for column, value in values.items()
    ]


def _stated(row: str, reading: Reading, paper: PaperTable) -> list[Cell]:
    def cell(column: str, value: float | None, write: Callable[[float], str]) -> Cell:
        stated = Paper(paper).number(row, column)
        return Cell(
            row=row,
            column=column,
            text=BEYOND if value is None else write(value),
            value=value,
            paper_value=stated,
            paper_text=None if stated is None else write(stated),
        )

    beyond = reading.beyond is not None
    return [
        Cell(row=row, column="read_x", text=count(reading.x), value=reading.x),
        cell("equal_x", reading.equal_x, count),
        cell("equal_ratio", reading.ratio, _WRITE),
        cell("equal_beyond", float(beyond), lambda flag: "yes" if flag else "no"),
    ]


def _point_notes(view: View[Options]) -> list[str]:
    """Say what the points are."""
    if view.options.by == "tokens":
        return [
            "Points are validation losses along one run for each seed. At all but the last the "
            "learning rate has not finished its decay, as in the paper's figure: a run that "
            "ended there would have a lower loss. Δ: paired difference over seeds at the same "
            "step.",
            view.training_note(),
        ]
    tokens = defined(view.evaluated()[0], "tokens")
    budgets = sorted({defined(result, "tokens") for result in view.trained()})
    counted = view.options.parameters
    return [
        f"The size of a model, the axis of the figure, counts {_COUNTED[counted]} "
        f"(column “{COUNTS[counted]}”).",
        f"Loss: cross-entropy in nats per token over {count(tokens)} held-out tokens in windows "
        f"of {view.suite.seq_len}. Δ: paired difference over seeds at the same shape.",
        f"Training: {span(budgets)} tokens a run, with the peak learning rate in the column lr.",
    ]


def _curve_notes(options: Options, lines: Sequence[Line]) -> list[str]:
    """Say what was fitted, how it is read, and where the intervals come from."""
    form = (
        f"a x^−b + c with c ≥ 0, as there are {options.offset_from} points or more"
        if options.has_offset(len(lines[0].points))
        else f"a x^−b, without an offset c, as it takes {options.offset_from} points"
    )
    what = "size" if options.by == "size" else "budget"
    notes = [
        f"Fit: loss = {form}; least squares in log loss, of the means over seeds.",
        f"Share needed: the loss of the fitted curve at a {what} x, and the {what} at which the "
        f"fitted curve of the row compared with has the same; their ratio. Each curve is read at "
        f"{options.read_at:.0%} of its largest {what}, about where the paper reads it. Nothing is "
        f"extrapolated: where the equal loss was not measured the cell says “{BEYOND}”.",
    ]
    if len(lines[0].points[0].seeds) > 1:
        notes.append(
            "In parentheses: 95% percentile intervals of a bootstrap over seeds, the same ones "
            "for every point and both rows; of few seeds they are too narrow. Verdicts on ratios "
            "use a t test of the ratios of single seeds instead."
        )
    return notes
