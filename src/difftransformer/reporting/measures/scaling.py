"""Loss by size or tokens, curves fitted to it, and where two rows have equal loss."""

from collections.abc import Iterator, Sequence

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.config.scaling import ScalingConfig
from difftransformer.reporting.cells import (
    DIFFERENCE,
    Paper,
    Place,
    difference_cell,
    fact_cell,
    mean_cell,
)
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.measures.scaling_notes import curve_notes, point_notes
from difftransformer.reporting.measures.scaling_published import published_section
from difftransformer.reporting.numbers import count, plain, rate
from difftransformer.reporting.scaling_cells import equal_loss_cells, estimate_cell
from difftransformer.reporting.scaling_curves import (
    COUNTS,
    DECIMALS,
    Curves,
    Line,
    Point,
    Sample,
    measured_lines,
    parameters,
)

_SHAPE = {"d_model": "Width", "layers": "Layers", "heads": "Heads", "head_dim": "d"}
_NOTHING = Paper(None)


def scaling(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[Section]:
    """Make the sections: measured points, curves through them, and the published points' curves.

    Raises:
        UserError: a result or a history is missing.
        DataError: a history is too short for a curve, or rows differ in their points.
    """
    assert part.scaling is not None
    lines = measured_lines(artifact, part, results)
    curves = Curves(lines, part.scaling, len(artifact.seeds))
    sections = [
        _points(artifact, part, results, lines, curves),
        _curves(part, part.scaling, lines, curves),
    ]
    if artifact.paper is not None and artifact.paper.series:
        columns = [one for one in _curve_columns(part) if not one.id.startswith("largest")]
        sections.append(published_section(columns, part, artifact.paper))
    return sections


def _points(
    artifact: ArtifactSlice,
    part: SectionSlice,
    results: Results,
    lines: Sequence[Line],
    curves: Curves,
) -> Section:
    """One row a point; rows of the artifact stand together at each size or budget."""
    assert part.scaling is not None
    by_run = {line.family.run: line for line in lines}
    rows, cells = [], []
    for place in range(len(lines[0].points)):
        for line in lines:
            point, family = line.points[place], line.family
            rows.append(Row(run=point.row, label=f"{family.label}, {count(point.x)}"))
            cells += _about(artifact, part, results, point)
            loss = mean_cell(Place(point.row, "loss"), point.seeds, DECIMALS, _NOTHING)
            cells.append(loss)
            if family.against is None:
                continue
            other = by_run[family.against].points[place]
            cells.append(_difference(Place(point.row, "loss" + DIFFERENCE), point, other))
            cells += equal_loss_cells(
                point.row, "at_equal", point.x, family, lines, curves, part.scaling.resamples
            )
    shape = [*_SHAPE.items(), ("learning_rate", "lr")] if part.measures == "size_scaling" else []
    columns = [Column(id=key, header=header) for key, header in (*shape, *_axis(part).items())]
    columns += [Column(id="loss", header="Loss ↓"), Column(id="loss" + DIFFERENCE, header="Δ Loss")]
    return Section(
        title=part.title,
        columns=columns + _equal_columns(part, "at_equal"),
        rows=rows,
        cells=cells,
        notes=point_notes(artifact, part, results),
    )


def _axis(part: SectionSlice) -> dict[str, str]:
    """Columns of what the horizontal axis counts; of sizes every way to count them."""
    if part.measures == "token_scaling":
        return {"tokens": "Tokens"}
    return {f"parameters_{key}": f"Parameters, {words}" for key, words in COUNTS.items()}


def _about(
    artifact: ArtifactSlice, part: SectionSlice, results: Results, point: Point
) -> list[Cell]:
    """What a point is: tokens, or the shape and size of the model; nothing is measured."""
    trained = [results.training(point.run, seed) for seed in artifact.seeds]

    def fact(column: str, value: float, text: str) -> Cell:
        cell = fact_cell(Place(point.row, column), value, trained, _NOTHING)
        return cell.model_copy(update={"text": text})

    if part.measures == "token_scaling":
        return [fact("tokens", point.x, count(point.x))]
    row = next(row for row in part.rows if row.run == point.run)
    cells = [
        fact_cell(Place(point.row, key), row.facts.get(key), trained, _NOTHING) for key in _SHAPE
    ]
    lr = float(trained[0].settings["training"]["lr"])
    cells.append(fact("learning_rate", lr, rate(lr)))
    sizes = {key: parameters(trained[0], key) for key in COUNTS}
    return cells + [fact(f"parameters_{key}", size, count(size)) for key, size in sizes.items()]


def _difference(place: Place, ours: Point, theirs: Point) -> Cell:
    one, two = (
        mean_cell(Place(point.row, "loss"), point.seeds, DECIMALS, _NOTHING)
        for point in (ours, theirs)
    )
    return difference_cell(place, one, two, DECIMALS, None)


def _equal_columns(part: SectionSlice, prefix: str) -> list[Column]:
    labels = {family.run: family.label for family in part.families}
    others = {labels[family.against] for family in part.families if family.against}
    if not others:
        return []
    other = others.pop() if len(others) == 1 else "The other"
    what = "size" if part.measures == "size_scaling" else "tokens"
    return [
        Column(id=f"{prefix}_x", header=f"{other}: {what} of equal loss"),
        Column(id=f"{prefix}_ratio", header="Share needed"),
        Column(id=f"{prefix}_beyond", header="beyond the measured range", tidy_only=True),
    ]


def _curve_columns(part: SectionSlice) -> list[Column]:
    return [
        Column(id="exponent", header="Exponent b"),
        Column(id="offset", header="Offset c"),
        Column(id="factor", header="a", tidy_only=True),
        Column(id="residual", header="rms residual in log loss", tidy_only=True),
        Column(id="largest_loss", header="Loss at the largest ↓"),
        Column(id="largest_loss" + DIFFERENCE, header="Δ Loss at the largest"),
        Column(id="read_x", header="Read at"),
        *_equal_columns(part, "equal"),
    ]


def _curves(
    part: SectionSlice, scaling: ScalingConfig, lines: Sequence[Line], curves: Curves
) -> Section:
    """One row a curve: what was fitted, the loss at its end, and its reading of equal loss."""
    cells = [cell for line in lines for cell in _curve_cells(line, scaling, curves)]
    by_run = {line.family.run: line for line in lines}
    for line in lines:
        family, last = line.family, line.points[-1]
        place = Place(family.run, "largest_loss")
        cells.append(mean_cell(place, last.seeds, DECIMALS, _NOTHING))
        if family.against is None:
            continue
        place = Place(family.run, "largest_loss" + DIFFERENCE)
        cells.append(_difference(place, last, by_run[family.against].points[-1]))
        x = curves.read_at(family.run)
        cells.append(Cell(row=family.run, column="read_x", text=count(x), value=x))
        cells += equal_loss_cells(family.run, "equal", x, family, lines, curves, scaling.resamples)
    return Section(
        title="Fitted curves",
        columns=_curve_columns(part),
        rows=[Row(run=line.family.run, label=line.family.label) for line in lines],
        cells=cells,
        notes=curve_notes(part, scaling, lines),
    )


def _curve_cells(line: Line, scaling: ScalingConfig, curves: Curves) -> Iterator[Cell]:
    run = line.family.run
    for column, field in (("exponent", "b"), ("offset", "c"), ("factor", "a"), ("residual",) * 2):

        def statistic(sample: Sample, field: str = field) -> float:
            return float(getattr(curves.curve(run, sample), field))

        yield estimate_cell(
            Place(run, column), statistic, [line], scaling.resamples, lambda x: plain(x, DECIMALS)
        )
