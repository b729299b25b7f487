"""Tables of decoding speed, its ratios, KV cache size and memory bandwidth utilization."""

from collections.abc import Callable
from itertools import product

import numpy as np

from difftransformer.evaluations.decoding.settings import MODE, MODEL, Options
from difftransformer.reporting.cells import CellKey
from difftransformer.reporting.charts import Point, draw_lines
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Column, Section
from difftransformer.reporting.drawing import Figure, label_axes, legend_below
from difftransformer.reporting.number_format import format_number
from difftransformer.reporting.panels import row_legend, set_log_ticks, subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import make_section
from difftransformer.reporting.timing_rounds import TimingResults

_SHARES = "Bytes that a step must read, per second, over the memory bandwidth; 1 is the limit."


def section(context: SectionContext[Options]) -> list[Section]:
    """Return the report sections of decoding speed, its ratios, KV cache and bandwidth."""
    first, *ratio_contexts = context.sibling_contexts
    if context.section is not first.section:
        return []  # the first section has its ratios
    timings = TimingResults(context.results, context.options.timing)
    result, peak = timings.result, timings.result.metrics.get("memory_bandwidth")
    shapes = timings.config.calls()

    def mib(row: str, shape: str) -> float:
        positions: int = shapes[shape].batch_size * shapes[shape].context
        return require_metric(result, f"cache_bytes/{row}") * positions / 2**20

    sections = [
        _speeds(first, timings),
        _ratios(first, timings, "Ratio to the Transformer"),
        *(_ratios(part, timings, part.title) for part in ratio_contexts),
        _by_shape(first, timings, "KV cache, MiB", timings.columns("_mib", "↓"), mib, 1),
    ]
    if peak is not None:

        def share(row: str, shape: str) -> float:
            speed = float(np.median(timings.fastest(shape, row, MODE)))
            return speed * require_metric(result, f"min_bytes_read/{shape}/{row}") / peak

        columns, title = timings.columns("_mbu", "↑"), "Memory bandwidth utilization"
        sections.append(_by_shape(first, timings, title, columns, share, 3, _SHARES))
    return sections


def figure(context: SectionContext[Options]) -> Figure:
    """Draw median decoding speed by context length, with quartiles of the rounds as bands."""
    timings = TimingResults(context.results, context.options.timing)
    contexts, batches = timings.config.contexts, timings.config.batches
    figure, (panel_axes,) = subplot_grid(1, len(batches), (4.2 * len(batches), 3.9))
    for axes, batch in zip(panel_axes, batches, strict=True):
        shapes = [
            shape for shape, batch_shape in timings.calls.items() if batch_shape.batch_size == batch
        ]
        points = [
            Point(row.run, context, speed)
            for row, (context, shape) in product(context.rows, zip(contexts, shapes, strict=True))
            for speed in timings.fastest(shape, row.run, MODE).ravel().tolist()
        ]
        draw_lines(axes, points, context.styles, estimator="median", errorbar=("pi", 50))
        set_log_ticks(axes, contexts, list(map(str, contexts)))
        axes.set_ylim(bottom=0)
        label_axes(
            axes, x="positions in the cache", y="tokens per second", title=f"Batch of {batch}"
        )
    legend_below(figure, row_legend(context.rows, context.styles))
    return figure


def _speeds(context: SectionContext[Options], timings: TimingResults) -> Section:
    """Make the section of cache bytes per token and tokens per second."""
    columns = [Column(id="cache_bytes", header="KV bytes per token ↓"), *timings.columns("", "↑")]
    cells = []
    for row in context.rows:
        size = require_metric(timings.result, f"cache_bytes/{row.run}")
        cells.append(timings.single_cell(CellKey(row.run, "cache_bytes"), size, f"{size:,.0f}"))
    cells += [
        timings.speed_cell(CellKey(row.run, shape), timings.fastest(shape, row.run, MODE))
        for row, shape in product(context.rows, timings.calls)
    ]
    return make_section(context, columns, cells, _notes(context, timings))


def _ratios(context: SectionContext[Options], timings: TimingResults, title: str) -> Section:
    """Make the section of speed ratios to the baseline within rounds.

    The first column is the geometric mean over all batch sizes and context lengths.
    """
    ratio = f"ratio{context.difference_suffix()}"
    columns = [Column(id=ratio, header="All ↑"), *timings.columns(f"_{ratio}", "↑")]
    rows = context.rows_with_baseline
    cells = [x for row in rows for x in timings.ratio_cells(row, timings.calls, MODE, ratio)]
    return make_section(context, columns, cells, title=title, rows=rows)


def _by_shape(
    context: SectionContext[Options],
    timings: TimingResults,
    title: str,
    columns: list[Column],
    number: Callable[[str, str], float],
    decimals: int,
    *notes: str,
) -> Section:
    """Make the section of a number by shape; ``number`` takes the row and the shape."""
    cells = []
    for row, (column, shape) in product(context.rows, zip(columns, timings.calls, strict=True)):
        value = number(row.run, shape)
        cells.append(
            timings.single_cell(CellKey(row.run, column.id), value, format_number(value, decimals))
        )
    return make_section(context, columns, cells, notes, title=title)


def _notes(context: SectionContext[Options], timings: TimingResults) -> list[str]:
    model = timings.result.settings["models"][context.rows[0].run][MODEL]
    return [
        f"Tokens per second of greedy decoding with a KV cache, {timings.config.new_tokens} tokens "
        f"at a time: {timings.rounds_note('row and backend')}",
        f"{timings.machine_note()} {model['num_layers']} layers, d_model {model['d_model']}, "
        f"head_dim {model['attention']['head_dim']}.",
    ]
