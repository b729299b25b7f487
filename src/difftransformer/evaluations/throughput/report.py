"""Tokens per second, memory and ratios, by shape and over shapes."""

from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.evaluations.throughput.settings import Options
from difftransformer.reporting.cells import Place
from difftransformer.reporting.charts import Estimate, estimate, estimates
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.drawing import INK, Figure, legend_below, looks, tidy
from difftransformer.reporting.numbers import plain
from difftransformer.reporting.panels import panels, row_signs
from difftransformer.reporting.rounds import DECIMALS, Timings, quartiles
from difftransformer.reporting.sections import section_of
from difftransformer.reporting.view import View

MODES = {"training": "Training", "forward": "Forward"}


def section(view: View[Options]) -> list[Section]:
    """Make a section over shapes, by the fastest backends, and one for each shape with them all."""
    timings = Timings(view.results, view.options.timing)
    shapes = timings.config.shapes
    return [_over_shapes(view, timings), *(_by_backend(view, timings, shape) for shape in shapes)]


def figure(view: View[Options]) -> Figure:
    """Draw ratios, a panel for each mode: shapes from left to right, then the published ones."""
    timings = Timings(view.results, view.options.timing)
    compared = [row for part in view.sections for row in part.compared_rows]
    look = looks({row.run: row.look for row in (view.rows[0], *compared)})
    shapes = _drawn_shapes(view, timings)
    figure, ((left, right),) = panels(1, len(MODES), (11, 4.2), sharey=True)
    for axes, (mode, title) in zip((left, right), MODES.items(), strict=True):
        axes.axhline(1.0, color=INK, lw=0.9)
        found = [
            one
            for row in compared
            for one in (*_measured_ratios(timings, row, mode), *_printed(view, row, mode, shapes))
        ]
        estimates(axes, found, look, shapes)
        tidy(axes, x="", y="tokens/s, ratio" if axes is left else "", title=title)
    legend_below(figure, row_signs(compared, look, line=0, mark=6))
    return figure


def _over_shapes(view: View[Options], timings: Timings) -> Section:
    shapes = timings.config.shapes
    columns = [Column(id=f"{mode}_ratio", header=f"{MODES[mode]}, ratio ↑") for mode in MODES]
    for shape, known in shapes.items():
        for mode, name in MODES.items():
            header = f"{known.label}: {name}"
            columns.append(Column(id=f"{shape}_{mode}", header=f"{header} ↑"))
            columns.append(Column(id=f"{shape}_{mode}_ratio", header=f"{header}, ratio ↑"))
    cells = list[Cell]()
    for row, mode in product(view.rows, MODES):
        cells += timings.ratio_cells(row, shapes, mode, f"{mode}_ratio")
        for shape in shapes:
            speeds = timings.fastest(shape, row.run, mode)
            place = Place(row.run, f"{shape}_{mode}")
            cells.append(timings.speed_cell(place, speeds, view.paper))
    return section_of(view, columns, cells, _notes(view, timings))


def _by_backend(view: View[Options], timings: Timings, shape: str) -> Section:
    """Every row by every backend at one shape."""
    known, columns, cells = timings.calls[shape], [], list[Cell]()
    turns = list(product(view.rows, timings.config.backends))
    for mode, header in MODES.items():
        column = f"{shape}_{mode}"
        columns.append(Column(id=column, header=f"{header}, tokens/s ↑"))
        columns.append(Column(id=f"{column}_memory", header="Memory, MB ↓"))
        shares = list[Cell]()
        for row, backend in turns:
            turn, name = (shape, row.run, backend, mode), f"{row.run}/{backend}"
            if not timings.is_timed(*turn):
                continue
            cells.append(timings.speed_cell(Place(name, column), timings.speeds(*turn)))
            for what, ending, unit, decimals, into in (
                ("peak_bytes", "memory", 1e6, 1, cells),
                ("mfu", "mfu", 1, DECIMALS, shares),
            ):
                if (value := timings.number(what, *turn)) is not None:
                    place, value = Place(name, f"{column}_{ending}"), value / unit
                    into.append(timings.one_cell(place, value, plain(value, decimals)))
        if shares:
            columns.append(Column(id=f"{column}_mfu", header="MFU ↑"))
            cells += shares
    return Section(
        title=f"{view.title}: {known.label}, batch of {known.batch_size}",
        columns=columns,
        rows=[Row(run=f"{row.run}/{one}", label=f"{row.label}, {one}") for row, one in turns],
        cells=cells,
        notes=[_sizes(view.rows[0], timings, shape)],
    )


def _notes(view: View[Options], timings: Timings) -> list[str]:
    return [
        timings.machine_note(),
        f"Tokens per second: {timings.rounds_note('row, backend and mode')}",
        f"Ratio to {' and '.join(sorted(view.references))}, within a round; the first two are "
        "geometric means over the shapes.",
    ]


def _sizes(row: RowSlice, timings: Timings, shape: str) -> str:
    model = timings.result.settings["models"][row.run][shape]
    return (
        f"{model['num_layers']} layers, d_model {model['d_model']}, feed-forward "
        f"{model['ffn_dim']}, head_dim {model['attention']['head_dim']}, vocabulary "
        f"{model['vocab_size']}."
    )


def _drawn_shapes(view: View[Options], timings: Timings) -> dict[str, str]:
    """Shapes with the names they are drawn under, the published ones last."""
    shown = {name: shape.label for name, shape in timings.config.shapes.items()}
    paper = view.artifact.paper
    for row in [] if paper is None else paper.rows.values():
        for name in row.values:
            if not name.endswith("_forward"):
                shape = name.removesuffix("_training")
                shown.setdefault(shape, f"{shape.upper().replace('_', ', ')}\npublished")
    return shown


def _measured_ratios(timings: Timings, row: RowSlice, mode: str) -> Iterator[Estimate]:
    """Median and quartiles of the rounds at each shape."""
    for shape in timings.config.shapes:
        ratios = timings.ratios(shape, row.run, str(row.against), mode).ravel().tolist()
        yield from estimate(shape, row.run, float(np.median(ratios)), quartiles(ratios), ratios)


def _printed(
    view: View[Options], row: RowSlice, mode: str, shapes: Iterable[str]
) -> Iterator[Estimate]:
    """Ratios of the printed tokens per second."""
    for shape in shapes:
        pair = [view.paper.number(str(run), f"{shape}_{mode}") for run in (row.run, row.against)]
        if (one := pair[0]) is not None and (two := pair[1]) is not None:
            yield from estimate(shape, row.run, None, published=one / two)
