"""Decoded tokens per second by batch size and context length, ratios, and bytes of the cache."""

from collections.abc import Callable
from itertools import product
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from difftransformer.measurements.decoding.settings import MODE, MODEL, Options
from difftransformer.reporting.cells import Place
from difftransformer.reporting.collect import defined
from difftransformer.reporting.curves import Curve, draw
from difftransformer.reporting.document import Column, Section
from difftransformer.reporting.drawing import legend_below, printable, tidy
from difftransformer.reporting.numbers import plain
from difftransformer.reporting.panels import log_ticks, panels
from difftransformer.reporting.rounds import Timings, quartiles
from difftransformer.reporting.sections import section_of
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHARES = (
    "Weights, once for all sequences of a step, and the keys and values of each, over the speed of "
    "the memory: of a GPU's data sheet, or what a large product of a matrix and a vector read on "
    "the CPU in the same job. 1 is the limit; what lies in a processor's cache may pass it."
)


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
            return speed * defined(result, f"least_bytes/{load}/{row}") / peak

        columns, title = timings.columns("_share", "↑"), "Share of the memory's speed"
        sections.append(_by_load(first, timings, title, columns, share, 3, _SHARES))
    return sections


def figure(view: View[Options]) -> "Figure":
    """Draw the first section by context: medians, with the quartiles of the rounds as bands."""
    timings = Timings(view.results, view.options.timing)
    contexts, batches = timings.config.contexts, timings.config.batches
    figure, (places,) = panels(1, len(batches), (4.2 * len(batches), 3.9))
    for axes, batch in zip(places, batches, strict=True):
        for row in view.rows:
            loads = [load for load, one in timings.calls.items() if one.batch_size == batch]
            speeds = [timings.fastest(load, row.run, MODE).ravel().tolist() for load in loads]
            curve = Curve(contexts, speeds, median, quartiles)
            draw(axes, curve, view.look[row.run], printable(row.label))
        log_ticks(axes, contexts, list(map(str, contexts)))
        axes.set_ylim(bottom=0)
        tidy(axes, x="positions in the cache", y="tokens per second", title=f"Batch of {batch}")
    legend_below(figure, places[0])
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
        f"at a time: {timings.rounds_note('row and backend')} Ratios are taken within a round; the "
        "first is the geometric mean over batch sizes and context lengths.",
        f"{timings.machine_note()} {model['num_layers']} layers, d_model {model['d_model']}, "
        f"head_dim {model['attention']['head_dim']}; all rows have the parameters of the first, by "
        "the width of their feed-forward. KV bytes: what the tensors of the cache grow by for each "
        "position, all layers.",
    ]
