"""Tables and figure of tokens per second, memory, MFU and ratios."""

from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np

from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.evaluations.throughput.settings import Options
from difftransformer.reporting.cells import CellKey
from difftransformer.reporting.charts import Estimate, draw_estimates, make_estimates
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.drawing import INK, Figure, label_axes, legend_below, row_styles
from difftransformer.reporting.number_format import format_number
from difftransformer.reporting.panels import row_legend, subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import make_section
from difftransformer.reporting.timing_rounds import DECIMALS, TimingResults, quartiles

MODES = {"training": "Training", "forward": "Forward"}


def section(context: SectionContext[Options]) -> list[Section]:
    """Return the report sections: the fastest backends over shapes, then all backends per shape."""
    timings = TimingResults(context.results, context.options.timing)
    shapes = timings.config.shapes
    return [
        _over_shapes(context, timings),
        *(_by_backend(context, timings, shape) for shape in shapes),
    ]


def figure(context: SectionContext[Options]) -> Figure:
    """Draw speed ratios to the baseline by shape, a panel per mode; published shapes come last."""
    timings = TimingResults(context.results, context.options.timing)
    compared = [row for part in context.sibling_contexts for row in part.rows_with_baseline]
    styles = row_styles({row.run: row.color for row in (context.rows[0], *compared)})
    shapes = _shape_labels(context, timings)
    figure, ((left, right),) = subplot_grid(1, len(MODES), (11, 4.2), sharey=True)
    for axes, (mode, title) in zip((left, right), MODES.items(), strict=True):
        axes.axhline(1.0, color=INK, lw=0.9)
        ratios = [
            ratio
            for row in compared
            for ratio in (
                *_measured_ratios(timings, row, mode),
                *_published_ratios(context, row, mode, shapes),
            )
        ]
        draw_estimates(axes, ratios, styles, shapes)
        label_axes(axes, x="", y="tokens/s, ratio" if axes is left else "", title=title)
    legend_below(figure, row_legend(compared, styles, line_width=0, marker_size=6))
    return figure


def _over_shapes(context: SectionContext[Options], timings: TimingResults) -> Section:
    shapes = timings.config.shapes
    columns = [Column(id=f"{mode}_ratio", header=f"{MODES[mode]}, ratio ↑") for mode in MODES]
    for shape, batch in shapes.items():
        for mode, name in MODES.items():
            header = f"{batch.label}: {name}"
            columns.append(Column(id=f"{shape}_{mode}", header=f"{header} ↑"))
            columns.append(Column(id=f"{shape}_{mode}_ratio", header=f"{header}, ratio ↑"))
    cells = list[Cell]()
    for row, mode in product(context.rows, MODES):
        cells += timings.ratio_cells(row, shapes, mode, f"{mode}_ratio")
        for shape in shapes:
            speeds = timings.fastest(shape, row.run, mode)
            key = CellKey(row.run, f"{shape}_{mode}")
            cells.append(timings.speed_cell(key, speeds, context.published))
    return make_section(context, columns, cells, _notes(context, timings))


def _by_backend(context: SectionContext[Options], timings: TimingResults, shape: str) -> Section:
    """Make the section of every row and backend at a shape."""
    batch, columns, cells = timings.calls[shape], [], list[Cell]()
    combinations = list(product(context.rows, timings.config.backends))
    for mode, header in MODES.items():
        column = f"{shape}_{mode}"
        columns.append(Column(id=column, header=f"{header}, tokens/s ↑"))
        columns.append(Column(id=f"{column}_memory", header="Memory, MB ↓"))
        utilizations = list[Cell]()
        for row, backend in combinations:
            timed_call, name = (shape, row.run, backend, mode), f"{row.run}/{backend}"
            if not timings.is_timed(*timed_call):
                continue
            cells.append(timings.speed_cell(CellKey(name, column), timings.speeds(*timed_call)))
            for metric, suffix, unit, decimals, target in (
                ("peak_bytes", "memory", 1e6, 1, cells),
                ("mfu", "mfu", 1, DECIMALS, utilizations),
            ):
                if (value := timings.number(metric, *timed_call)) is not None:
                    key, value = CellKey(name, f"{column}_{suffix}"), value / unit
                    target.append(timings.single_cell(key, value, format_number(value, decimals)))
        if utilizations:
            columns.append(Column(id=f"{column}_mfu", header="MFU ↑"))
            cells += utilizations
    return Section(
        title=f"{context.title}: {batch.label}, batch of {batch.batch_size}",
        columns=columns,
        rows=[
            Row(run=f"{row.run}/{row_backend}", label=f"{row.label}, {row_backend}")
            for row, row_backend in combinations
        ],
        cells=cells,
        notes=[_sizes(context.rows[0], timings, shape)],
    )


def _notes(context: SectionContext[Options], timings: TimingResults) -> list[str]:
    return [
        timings.machine_note(),
        f"Tokens per second: {timings.rounds_note('row, backend and mode')}",
        f"Ratio to {' and '.join(sorted(context.baseline_labels))}, within a round; "
        "the first two are geometric means over the shapes.",
    ]


def _sizes(row: ResolvedRow, timings: TimingResults, shape: str) -> str:
    model = timings.result.settings["models"][row.run][shape]
    return (
        f"{model['num_layers']} layers, d_model {model['d_model']}, feed-forward "
        f"{model['ffn_dim']}, head_dim {model['attention']['head_dim']}, vocabulary "
        f"{model['vocab_size']}."
    )


def _shape_labels(context: SectionContext[Options], timings: TimingResults) -> dict[str, str]:
    """Return labels of the shapes in the figure, the published ones last."""
    labels = {name: shape.label for name, shape in timings.config.shapes.items()}
    paper = context.artifact.paper
    for row in [] if paper is None else paper.rows.values():
        for name in row.values:
            if not name.endswith("_forward"):
                shape = name.removesuffix("_training")
                labels.setdefault(shape, f"{shape.upper().replace('_', ', ')}\npublished")
    return labels


def _measured_ratios(timings: TimingResults, row: ResolvedRow, mode: str) -> Iterator[Estimate]:
    """Yield median and quartiles of the ratios within rounds at each shape."""
    for shape in timings.config.shapes:
        ratios = timings.ratios(shape, row.run, str(row.baseline), mode).ravel().tolist()
        yield from make_estimates(
            shape, row.run, float(np.median(ratios)), quartiles(ratios), ratios
        )


def _published_ratios(
    context: SectionContext[Options], row: ResolvedRow, mode: str, shapes: Iterable[str]
) -> Iterator[Estimate]:
    """Yield ratios of the published tokens per second."""
    for shape in shapes:
        pair = [
            context.published.number(str(run), f"{shape}_{mode}") for run in (row.run, row.baseline)
        ]
        if (speed := pair[0]) is not None and (baseline_speed := pair[1]) is not None:
            yield from make_estimates(shape, row.run, None, published=speed / baseline_speed)
