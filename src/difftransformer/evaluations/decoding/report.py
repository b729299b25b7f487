"""Decoded tokens per second by batch size and context length, ratios, and bytes of the cache."""

from collections.abc import Callable
from itertools import product

import numpy as np

from difftransformer.evaluations.decoding.settings import MODE, MODEL, Options
from difftransformer.reporting.cells import Place
from difftransformer.reporting.charts import Point, lines
from difftransformer.reporting.collect import defined
from difftransformer.reporting.document import Column, Section
from difftransformer.reporting.drawing import Figure, legend_below, tidy
from difftransformer.reporting.numbers import plain
from difftransformer.reporting.panels import log_ticks, panels, row_signs
from difftransformer.reporting.rounds import Timings
from difftransformer.reporting.sections import section_of
from difftransformer.reporting.view import View

_SHARES = "Bytes that a step must read, per second, over the memory bandwidth; 1 is the limit."


def section(view: View[Options]) -> list[Section]:
    """Make speeds and bytes of the first section's rows; between them stand all ratios."""
    first, *further = view.sections
    if view.part is not first.part:
        return []  # its ratios stand among the first one's
    timings = Timings(view.results, view.options.timing)
    result, peak = timings.result, timings.result.metrics.get("memory_bandwidth")
    loads = timings.config.calls()

    def mib(row: str, load: str) -> float:
        positions: int = loads[load].batch_size * loads[load].context
        return defined(result, f"cache_bytes/{row}") * positions / 2**20

    sections = [
        _speeds(first, timings),
        _ratios(first, timings, "Ratio to the Transformer"),
        *(_ratios(part, timings, part.title) for part in further),
        _by_load(first, timings, "KV cache, MiB", timings.columns("_mib", "↓"), mib, 1),
    ]
    if peak is not None:

        def share(row: str, load: str) -> float:
            speed = float(np.median(timings.fastest(load, row, MODE)))
            return speed * defined(result, f"min_bytes_read/{load}/{row}") / peak

        columns, title = timings.columns("_mbu", "↑"), "Memory bandwidth utilization"
        sections.append(_by_load(first, timings, title, columns, share, 3, _SHARES))
    return sections


def figure(view: View[Options]) -> Figure:
    """Draw the first section by context: medians, with the quartiles of the rounds as bands."""
    timings = Timings(view.results, view.options.timing)
    contexts, batches = timings.config.contexts, timings.config.batches
    figure, (places,) = panels(1, len(batches), (4.2 * len(batches), 3.9))
    for axes, batch in zip(places, batches, strict=True):
        loads = [load for load, one in timings.calls.items() if one.batch_size == batch]
        points = [
            Point(row.run, context, speed)
            for row, (context, load) in product(view.rows, zip(contexts, loads, strict=True))
            for speed in timings.fastest(load, row.run, MODE).ravel().tolist()
        ]
        lines(axes, points, view.look, estimator="median", errorbar=("pi", 50))
        log_ticks(axes, contexts, list(map(str, contexts)))
        axes.set_ylim(bottom=0)
        tidy(axes, x="positions in the cache", y="tokens per second", title=f"Batch of {batch}")
    legend_below(figure, row_signs(view.rows, view.look))
    return figure


def _speeds(view: View[Options], timings: Timings) -> Section:
    """Bytes of the cache for each position, and tokens per second of every round."""
    columns = [Column(id="cache_bytes", header="KV bytes a token ↓"), *timings.columns("", "↑")]
    cells = []
    for row in view.rows:
        size = defined(timings.result, f"cache_bytes/{row.run}")
        cells.append(timings.one_cell(Place(row.run, "cache_bytes"), size, f"{size:,.0f}"))
    cells += [
        timings.speed_cell(Place(row.run, load), timings.fastest(load, row.run, MODE))
        for row, load in product(view.rows, timings.calls)
    ]
    return section_of(view, columns, cells, _notes(view, timings))


def _ratios(view: View[Options], timings: Timings, title: str) -> Section:
    """Speed of every row over that of the row it is compared with, round by round.

    The first column has the geometric mean over all batch sizes and context lengths.
    """
    ratio = f"ratio{view.reference()}"
    columns = [Column(id=ratio, header="All ↑"), *timings.columns(f"_{ratio}", "↑")]
    rows = view.compared_rows
    cells = [x for row in rows for x in timings.ratio_cells(row, timings.calls, MODE, ratio)]
    return section_of(view, columns, cells, title=title, rows=rows)


def _by_load(
    view: View[Options],
    timings: Timings,
    title: str,
    columns: list[Column],
    number: Callable[[str, str], float],
    decimals: int,
    *notes: str,
) -> Section:
    """A number of every row by load; ``number`` takes the row and the load."""
    cells = []
    for row, (column, load) in product(view.rows, zip(columns, timings.calls, strict=True)):
        value = number(row.run, load)
        cells.append(timings.one_cell(Place(row.run, column.id), value, plain(value, decimals)))
    return section_of(view, columns, cells, notes, title=title)


def _notes(view: View[Options], timings: Timings) -> list[str]:
    model = timings.result.settings["models"][view.rows[0].run][MODEL]
    return [
        f"Tokens per second of greedy decoding with a KV cache, {timings.config.new_tokens} tokens "
        f"at a time: {timings.rounds_note('row and backend')}",
        f"{timings.machine_note()} {model['num_layers']} layers, d_model {model['d_model']}, "
        f"head_dim {model['attention']['head_dim']}.",
    ]
