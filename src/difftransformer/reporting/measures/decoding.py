"""Decoded tokens per second by batch size and context length, ratios, and bytes of the cache."""

import math
from itertools import product
from statistics import median

from difftransformer.config.artifact_slices import SectionSlice
from difftransformer.config.decoding import DecodingConfig
from difftransformer.reporting.cells import Paper, Place
from difftransformer.reporting.collect import Results, defined
from difftransformer.reporting.document import Column, Row, Section
from difftransformer.reporting.numbers import plain
from difftransformer.reporting.rounds import (
    geometric_means,
    machine_note,
    one_cell,
    quotients,
    ratio_cell,
    rounds_note,
    speed_cell,
    timed_with,
)

RATIO = "ratio"
"""Column of the geometric mean of ratios over all batch sizes and context lengths."""
Load = tuple[int, int]
"""Batch size and context length."""


class DecodingTimings:
    """The one result of the decoding job.

    Args:
        results: Results of the artifact.

    Raises:
        UserError: There is no such result, or it was made with other settings.
    """

    def __init__(self, results: Results) -> None:
        self.result, self.config = timed_with(results, "decoding", DecodingConfig)

    @property
    def loads(self) -> list[Load]:
        """Every batch size and context length."""
        return list(product(self.config.batches, self.config.contexts))

    def speeds(self, row: str, load: Load) -> list[float]:
        """Tokens per second of each round, by the backend with the highest median.

        Raises:
            UserError: The row was not timed.
        """
        by_backend = [self._speeds(row, load, backend) for backend in self.config.backends]
        return max(by_backend, key=median)

    def ratios(self, row: str, against: str, load: Load) -> list[float]:
        """Speed of a row over that of another, round by round."""
        return quotients(self.speeds(row, load), self.speeds(against, load))

    def overall(self, row: str, against: str) -> list[float]:
        """Geometric mean of the ratios over all loads, round by round."""
        return geometric_means([self.ratios(row, against, load) for load in self.loads])

    def cache_bytes(self, row: str) -> float:
        """Bytes that the cache grows by with each position of a sequence."""
        return defined(self.result, f"cache_bytes/{row}")

    def _speeds(self, row: str, load: Load, backend: str) -> list[float]:
        place = f"seconds/b{load[0]}/s{load[1]}/{row}/{backend}"
        written = load[0] * self.config.new_tokens
        return [written / defined(self.result, f"{place}/{n}") for n in range(self.config.repeats)]


def speeds(part: SectionSlice, timings: DecodingTimings) -> Section:
    """Bytes of the cache for each position, and tokens per second of every round."""
    job = timings.result.job_id
    columns = [Column(id="cache_bytes", header="KV bytes a token ↓")]
    columns += [Column(id=_name(load), header=f"{_words(load)} ↑") for load in timings.loads]
    cells = []
    for row in part.rows:
        size = timings.cache_bytes(row.run)
        cells.append(one_cell(Place(row.run, "cache_bytes"), size, f"{size:,.0f}", job))
    cells += [
        speed_cell(Place(row.run, _name(load)), timings.speeds(row.run, load), job, Paper(None))
        for row in part.rows
        for load in timings.loads
    ]
    rows = [Row(run=row.run, label=row.label) for row in part.rows]
    return Section(
        title=part.title, columns=columns, rows=rows, cells=cells, notes=_notes(part, timings)
    )


def ratios(part: SectionSlice, timings: DecodingTimings, title: str, ending: str = "") -> Section:
    """Speed of every row over that of the row it is compared with, round by round.

    ``ending`` is that of the columns' ids, where another section has the same ratios to others.
    """
    job, loads = timings.result.job_id, timings.loads
    columns = [Column(id=RATIO + ending, header="All ↑")]
    columns += [
        Column(id=f"{_name(load)}_{RATIO}{ending}", header=f"{_words(load)} ↑") for load in loads
    ]
    compared, cells = [], []
    for row in part.rows:
        if row.against is None:
            continue
        compared.append(Row(run=row.run, label=row.label))
        found = [timings.overall(row.run, row.against)]
        found += [timings.ratios(row.run, row.against, load) for load in loads]
        cells += [
            ratio_cell(Place(row.run, column.id), values, job)
            for column, values in zip(columns, found, strict=True)
        ]
    return Section(title=title, columns=columns, rows=compared, cells=cells)


def held(part: SectionSlice, timings: DecodingTimings) -> Section:
    """MiB of the whole cache: the bytes of a position for every position of every sequence."""
    job, loads = timings.result.job_id, timings.loads
    cells = []
    for row, load in product(part.rows, loads):
        mib = timings.cache_bytes(row.run) * math.prod(load) / 2**20
        cells.append(one_cell(Place(row.run, f"{_name(load)}_mib"), mib, plain(mib, 1), job))
    return Section(
        title="KV cache, MiB",
        columns=[Column(id=f"{_name(load)}_mib", header=f"{_words(load)} ↓") for load in loads],
        rows=[Row(run=row.run, label=row.label) for row in part.rows],
        cells=cells,
    )


def _name(load: Load) -> str:
    return f"b{load[0]}_s{load[1]}"


def _words(load: Load) -> str:
    return f"batch {load[0]}, context {load[1]}"


def _notes(part: SectionSlice, timings: DecodingTimings) -> list[str]:
    config = timings.config
    model = timings.result.settings["models"][part.rows[0].run]
    return [
        f"Tokens per second of greedy decoding with a KV cache, {config.new_tokens} tokens at a "
        f"time: {rounds_note(config, 'row and backend')} Ratios are taken within a round; the "
        "first is the geometric mean over batch sizes and context lengths.",
        f"{machine_note(timings.result, config)} {model['num_layers']} layers, d_model "
        f"{model['d_model']}, head_dim {model['attention']['head_dim']}; all rows have the "
        "parameters of the first, by the width of their feed-forward. KV bytes: what the tensors "
        "of the cache grow by for each position, all layers.",
    ]
