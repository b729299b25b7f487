"""Decoded tokens per second by batch size and context length, ratios, and bytes of the cache."""

import math
from itertools import product
from statistics import median
from typing import TYPE_CHECKING

from difftransformer.measurements.decoding.settings import MODE, MODEL, Options, load_name
from difftransformer.reporting.cells import Place
from difftransformer.reporting.collect import defined
from difftransformer.reporting.curves import Curve, draw
from difftransformer.reporting.document import Column, Section
from difftransformer.reporting.drawing import legend_below, printable, tidy
from difftransformer.reporting.numbers import plain
from difftransformer.reporting.panels import log_ticks, panels
from difftransformer.reporting.rounds import Timings, every, middle, quartiles
from difftransformer.reporting.sections import section_of
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def section(view: View[Options]) -> list[Section]:
    """Make speeds and bytes of the first section's rows; between them stand all ratios."""
    first, *further = view.sections
    if view.part is not first.part:
        return []  # its ratios stand among the first one's
    timings = Timings(view.results, view.options.timing)
    return [
        _speeds(first, timings),
        _ratios(first, timings, "Ratio to the Transformer"),
        *(_ratios(part, timings, part.title) for part in further),
        _held(first, timings),
        *_shares(first, timings),
    ]


def figure(view: View[Options]) -> "Figure":
    """Draw the first section by context: medians, with the quartiles of the rounds as bands."""
    timings = Timings(view.results, view.options.timing)
    contexts, batches = timings.config.contexts, timings.config.batches
    figure, (places,) = panels(1, len(batches), (4.2 * len(batches), 3.9))
    for axes, batch in zip(places, batches, strict=True):
        for row in view.rows:
            names = [load_name(batch, one) for one in contexts]
            speeds = [every(timings.fastest(name, row.run, MODE)) for name in names]
            curve = Curve(contexts, speeds, median, quartiles)
            draw(axes, curve, view.look[row.run], printable(row.label))
        log_ticks(axes, contexts, list(map(str, contexts)))
        axes.set_ylim(bottom=0)
        tidy(axes, x="positions in the cache", y="tokens per second", title=f"Batch of {batch}")
    legend_below(figure, places[0])
    return figure


def cache_bytes(timings: Timings, row: str) -> float:
    """Bytes that the cache grows by with each position of a sequence.

    Raises:
        UserError: The row was not timed.
    """
    return defined(timings.result, f"cache_bytes/{row}")


def _speeds(view: View[Options], timings: Timings) -> Section:
    """Bytes of the cache for each position, and tokens per second of every round."""
    columns = [Column(id="cache_bytes", header="KV bytes a token ↓")]
    columns += [Column(id=name, header=f"{one.label} ↑") for name, one in timings.calls.items()]
    cells = []
    for row in view.rows:
        size = cache_bytes(timings, row.run)
        cells.append(timings.one_cell(Place(row.run, "cache_bytes"), size, f"{size:,.0f}"))
    cells += [
        timings.speed_cell(Place(row.run, name), timings.fastest(name, row.run, MODE))
        for row in view.rows
        for name in timings.calls
    ]
    return section_of(view, columns, cells, _notes(view, timings))


def _ratios(view: View[Options], timings: Timings, title: str) -> Section:
    """Speed of every row over that of the row it is compared with, round by round.

    The first column has the geometric mean over all batch sizes and context lengths.
    """
    ratio, calls = f"ratio{view.reference()}", timings.calls
    columns = [Column(id=ratio, header="All ↑")]
    columns += [Column(id=f"{id}_{ratio}", header=f"{one.label} ↑") for id, one in calls.items()]
    cells = []
    for row in view.compared_rows:
        against = str(row.against)
        found = [timings.overall(calls, row.run, against, MODE)]
        found += [timings.ratios(name, row.run, against, MODE) for name in calls]
        cells += [
            timings.ratio_cell(Place(row.run, column.id), values)
            for column, values in zip(columns, found, strict=True)
        ]
    return section_of(view, columns, cells, title=title, rows=view.compared_rows)


def _held(view: View[Options], timings: Timings) -> Section:
    """MiB of the whole cache: the bytes of a position for every position of every sequence."""
    loads = dict(zip(timings.calls, timings.config.loads, strict=True))
    calls, cells = timings.calls.items(), []
    columns = [Column(id=f"{name}_mib", header=f"{call.label} ↓") for name, call in calls]
    for row, (name, load) in product(view.rows, loads.items()):
        mib = cache_bytes(timings, row.run) * math.prod(load) / 2**20
        cells.append(timings.one_cell(Place(row.run, f"{name}_mib"), mib, plain(mib, 1)))
    return section_of(view, columns, cells, title="KV cache, MiB")


def _shares(view: View[Options], timings: Timings) -> list[Section]:
    """Bytes that must be read in a second, of those that the memory gives: decoding's roofline."""
    peak = timings.result.metrics.get("memory_bandwidth")
    if peak is None:
        return []
    columns = [
        Column(id=f"{id}_share", header=f"{one.label} ↑") for id, one in timings.calls.items()
    ]
    cells = []
    for row, name in product(view.rows, timings.calls):
        needed = defined(timings.result, f"least_bytes/{name}/{row.run}")
        share = middle(timings.fastest(name, row.run, MODE)) * needed / peak
        cells.append(timings.one_cell(Place(row.run, f"{name}_share"), share, plain(share, 3)))
    note = (
        "Weights, once for all sequences of a step, and the keys and values of each, over the "
        "speed of the memory: of a GPU's data sheet, or what a large product of a matrix and a "
        "vector read on the CPU in the same job. 1 is the limit; what lies in a processor's cache "
        "may pass it."
    )
    return [section_of(view, columns, cells, [note], title="Share of the memory's speed")]


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
