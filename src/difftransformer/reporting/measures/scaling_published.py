"""The published points of a scaling figure, fitted and read like ours."""

from collections.abc import Callable, Sequence

from difftransformer.config.artifact_slices import FamilySlice, SectionSlice
from difftransformer.config.paper_values import PaperTable
from difftransformer.config.scaling import ScalingConfig
from difftransformer.reporting.cells import Paper
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.numbers import count, plain
from difftransformer.reporting.scaling_cells import BEYOND
from difftransformer.reporting.scaling_curves import DECIMALS, has_offset
from difftransformer.reporting.scaling_fit import (
    PowerLaw,
    Reading,
    fit_power_law,
    read_equal_loss,
)


def published_curves(paper: PaperTable, scaling: ScalingConfig) -> dict[str, PowerLaw]:
    """Fit every published series, with an offset where our points would get one."""
    return {
        run: fit_power_law(one.x, one.y, offset=has_offset(len(one.x), scaling))
        for run, one in paper.series.items()
    }


def published_readings(
    paper: PaperTable, families: Sequence[FamilySlice], curves: dict[str, PowerLaw]
) -> dict[str, tuple[FamilySlice, Reading]]:
    """Read the curves where the paper reads its own, at the ``x`` of each of its rows.

    Returns:
        Published row -> whose curve is read, and the reading.
    """
    found = {}
    pair = next((one for one in families if one.run in curves and one.against in curves), None)
    for row in paper.rows:
        x = Paper(paper).number(row, "x")
        if pair is not None and x is not None:
            theirs = curves[str(pair.against)]
            found[row] = (pair, read_equal_loss(curves[pair.run], theirs, x))
    return found


def published_section(columns: list[Column], part: SectionSlice, paper: PaperTable) -> Section:
    """Make the section: one row a published curve, and one a ratio that the paper states."""
    assert part.scaling is not None
    curves = published_curves(paper, part.scaling)
    readings = published_readings(paper, part.families, curves)
    rows = [
        Row(run=f"published_{run}", label=f"Published points, {paper.series[run].label}")
        for run in curves
    ]
    rows += [Row(run=row, label=f"Published, {paper.rows[row].label}") for row in readings]
    return Section(
        title="The same fit of the published points",
        columns=columns,
        rows=rows,
        cells=[
            *(cell for run, curve in curves.items() for cell in _curve(f"published_{run}", curve)),
            *(
                cell
                for row, (_, one) in readings.items()
                for cell in _reading(row, one, Paper(paper))
            ),
        ],
        notes=[
            "Fitted by us to the published points; in brackets what the paper states of its own "
            "fit. It does not say how it fitted: the curves here, read at the sizes or budgets it "
            "names, are our reconstruction."
        ],
    )


def _curve(row: str, curve: PowerLaw) -> list[Cell]:
    values = {
        "exponent": curve.b, "offset": curve.c, "factor": curve.a, "residual": curve.residual,
    }  # fmt: skip
    return [
        Cell(row=row, column=column, text=plain(value, DECIMALS), value=value)
        for column, value in values.items()
    ]


def _reading(row: str, reading: Reading, paper: Paper) -> list[Cell]:
    def cell(column: str, value: float | None, write: Callable[[float], str]) -> Cell:
        stated = paper.number(row, column)
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
        cell("equal_ratio", reading.ratio, lambda ratio: plain(ratio, DECIMALS)),
        cell("equal_beyond", float(beyond), lambda flag: "yes" if flag else "no"),
    ]
