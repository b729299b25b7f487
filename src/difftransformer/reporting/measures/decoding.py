"""Decoded tokens per second by batch size and context length, ratios, and bytes of the cache."""

import math
from collections.abc import Sequence
from itertools import product
from statistics import median

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.config.decoding import DecodingConfig
from difftransformer.errors import UserError
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import Place
from difftransformer.reporting.collect import Results, metric
from difftransformer.reporting.document import Cell, Column, Row, Section, SeedValue
from difftransformer.reporting.measures.throughput import DECIMALS, quartile
from difftransformer.reporting.numbers import count, plain
from difftransformer.reporting.statistics import mean_interval

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
        self.result: Result = results.decoding()
        try:
            self.config = DecodingConfig.model_validate(self.result.settings["config"])
        except (KeyError, ValueError):
            raise UserError(f"{self.result.job_id}: has no settings of decoding: rerun") from None

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
        pairs = zip(self.speeds(row, load), self.speeds(against, load), strict=True)
        return [one / two for one, two in pairs]

    def overall(self, row: str, against: str) -> list[float]:
        """Geometric mean of the ratios over all loads, round by round."""
        by_load = [self.ratios(row, against, load) for load in self.loads]
        return [
            math.exp(math.fsum(map(math.log, one)) / len(one)) for one in zip(*by_load, strict=True)
        ]

    def cache_bytes(self, row: str) -> float:
        """Bytes that the cache grows by with each position of a sequence."""
        return metric(self.result, f"cache_bytes/{row}") or 0.0

    def _speeds(self, row: str, load: Load, backend: str) -> list[float]:
        place = f"seconds/b{load[0]}/s{load[1]}/{row}/{backend}"
        written = load[0] * self.config.new_tokens
        seconds = [metric(self.result, f"{place}/{n}") for n in range(self.config.repeats)]
        return [written / one for one in seconds if one is not None]


def decoding(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[Section]:
    """Make a section of tokens per second and bytes, and one of ratios round by round.

    Raises:
        UserError: The timings are missing, or lack a row.
    """
    timings = DecodingTimings(results)
    rows = [Row(run=row.run, label=row.label) for row in part.rows]
    speeds = [Column(id="cache_bytes", header="KV bytes a token ↓")]
    speeds += [Column(id=_name(load), header=f"{_words(load)} ↑") for load in timings.loads]
    cells = [_bytes(row.run, timings) for row in part.rows]
    cells += [
        _cell(Place(row.run, _name(load)), timings.speeds(row.run, load), timings)
        for row in part.rows
        for load in timings.loads
    ]
    ratios = [Column(id=RATIO, header="All ↑")]
    ratios += [
        Column(id=f"{_name(load)}_{RATIO}", header=f"{_words(load)} ↑") for load in timings.loads
    ]
    found = []
    for row in part.rows:
        if row.against is None:
            continue
        found.append(
            ratio_cell(Place(row.run, RATIO), timings.overall(row.run, row.against), timings)
        )
        found += [
            ratio_cell(
                Place(row.run, f"{_name(load)}_{RATIO}"),
                timings.ratios(row.run, row.against, load), timings,
            )
            for load in timings.loads
        ]  # fmt: skip
    compared = [Row(run=row.run, label=row.label) for row in part.rows if row.against]
    return [
        Section(
            title=part.title, columns=speeds, rows=rows, cells=cells, notes=_notes(part, timings)
        ),
        Section(title="Ratio to the row compared with", columns=ratios, rows=compared, cells=found),
    ]


def ratio_cell(place: Place, ratios: Sequence[float], timings: DecodingTimings) -> Cell:
    """Median and quartiles to read, and the t interval of the mean for the verdict."""
    found = mean_interval(ratios)
    low, high = (plain(quartile(ratios, which), DECIMALS) for which in (1, 3))
    return Cell(
        row=place.row,
        column=place.column,
        text=f"{plain(median(ratios), DECIMALS)} ({low} to {high})",
        value=median(ratios),
        std=found.std,
        ci_low=found.low,
        ci_high=found.high,
        n=found.n,
        seeds=_rounds(ratios, timings),
    )


def _cell(place: Place, speeds: Sequence[float], timings: DecodingTimings) -> Cell:
    text = f"{count(median(speeds))} ({count(quartile(speeds, 1))} to {count(quartile(speeds, 3))})"
    return Cell(
        row=place.row,
        column=place.column,
        text=text,
        value=median(speeds),
        n=len(speeds),
        seeds=_rounds(speeds, timings),
    )


def _bytes(run: str, timings: DecodingTimings) -> Cell:
    value = timings.cache_bytes(run)
    return Cell(
        row=run, column="cache_bytes", text=f"{value:,.0f}", value=value, n=1,
        seeds=_rounds([value], timings),
    )  # fmt: skip


def _rounds(values: Sequence[float], timings: DecodingTimings) -> list[SeedValue]:
    return [
        SeedValue(
            seed=number, value=value, text=plain(value, DECIMALS), job_ids=[timings.result.job_id]
        )
        for number, value in enumerate(values)
    ]


def _name(load: Load) -> str:
    return f"b{load[0]}_s{load[1]}"


def _words(load: Load) -> str:
    return f"batch {load[0]}, context {load[1]}"


def _notes(part: SectionSlice, timings: DecodingTimings) -> list[str]:
    config, found = timings.config, timings.result.provenance
    machine = found.hardware.get("gpu") or found.hardware["cpu"]
    model = timings.result.settings["models"][part.rows[0].run]
    clock = "" if config.clock == "wall" else " Seconds are those of CPU time."
    return [
        f"Tokens per second of greedy decoding with a KV cache, {config.new_tokens} tokens at a "
        f"time: median (quartiles) of {config.repeats} rounds after {config.warmup} untimed ones, "
        "in each of which every row and backend has one turn; by the backend that is fastest for "
        f"the row ({', '.join(config.backends)}).{clock} Ratios are taken within a round; the "
        "first is the geometric mean over batch sizes and context lengths. Rounds are repeats in "
        "one process, not independent runs.",
        f"Measured on {machine} with {found.threads} thread{'s' * (found.threads > 1)}, "
        f"{config.precision}; it says nothing of other machines. {model['num_layers']} layers, "
        f"d_model {model['d_model']}, head_dim {model['attention']['head_dim']}; all rows have the "
        "parameters of the first, by the width of their feed-forward. KV bytes: what the tensors "
        "of the cache grow by for each position, all layers.",
    ]
