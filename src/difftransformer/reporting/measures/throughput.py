"""Tokens per second, memory and ratios of the throughput job, by shape and over shapes."""

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice
from difftransformer.config.throughput import ThroughputConfig
from difftransformer.errors import UserError
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import Paper, Place
from difftransformer.reporting.collect import Results, metric
from difftransformer.reporting.document import Cell, Column, Row, Section, SeedValue
from difftransformer.reporting.numbers import count, plain
from difftransformer.reporting.statistics import mean_interval

MODES = {"training": "Training", "forward": "Forward"}
DECIMALS = 3


class Turn(NamedTuple):
    """One row by one backend at one shape."""

    shape: str
    row: str
    backend: str


class Timings:
    """The one result of the throughput job.

    Args:
        results: Results of the artifact.

    Raises:
        UserError: There is no such result, or it was made with other settings.
    """

    def __init__(self, results: Results) -> None:
        self.result: Result = results.timings()
        try:
            self.config = ThroughputConfig.model_validate(self.result.settings["config"])
        except (KeyError, ValueError):
            raise UserError(f"{self.result.job_id}: has no settings of throughput: rerun") from None

    def seconds(self, turn: Turn, mode: str) -> list[float]:
        """Seconds of each round.

        Raises:
            UserError: The row was not timed.
        """
        names = [
            f"seconds/{turn.shape}/{turn.row}/{turn.backend}/{mode}/{number}"
            for number in range(self.config.repeats)
        ]
        return [metric(self.result, name) or math.nan for name in names]

    def speeds(self, turn: Turn, mode: str) -> list[float]:
        """Tokens per second of each round."""
        shape = self.config.shapes[turn.shape]
        return [shape.seq_len * shape.batch_size / one for one in self.seconds(turn, mode)]

    def number(self, name: str, turn: Turn, mode: str) -> float | None:
        """Another number of a turn, such as peak_bytes."""
        return metric(self.result, f"{name}/{turn.shape}/{turn.row}/{turn.backend}/{mode}")

    def fastest(self, shape: str, row: str, mode: str) -> Turn:
        """The backend with the highest median."""
        turns = [Turn(shape, row, backend) for backend in self.config.backends]
        return max(turns, key=lambda turn: median(self.speeds(turn, mode)))

    def ratios(self, shape: str, row: str, against: str, mode: str) -> list[float]:
        """Speed of a row over that of another, each by its fastest backend, round by round."""
        ours, theirs = self.fastest(shape, row, mode), self.fastest(shape, against, mode)
        pairs = zip(self.speeds(ours, mode), self.speeds(theirs, mode), strict=True)
        return [one / two for one, two in pairs]

    def overall(self, row: str, against: str, mode: str) -> list[float]:
        """Geometric mean of these ratios over shapes, round by round."""
        by_shape = [self.ratios(shape, row, against, mode) for shape in self.config.shapes]
        return [
            math.exp(math.fsum(map(math.log, one)) / len(one))
            for one in zip(*by_shape, strict=True)
        ]


def throughput(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[Section]:
    """Make a section over shapes, by the fastest backends, and one for each shape with them all.

    Raises:
        UserError: The timings are missing, or lack a row.
    """
    timings = Timings(results)
    return [
        _over_shapes(artifact, part, timings),
        *(_by_backend(part, timings, shape) for shape in timings.config.shapes),
    ]


def _over_shapes(artifact: ArtifactSlice, part: SectionSlice, timings: Timings) -> Section:
    columns, cells = [], []
    paper = Paper(artifact.paper)
    for mode, header in MODES.items():
        columns.append(Column(id=f"{mode}_ratio", header=f"{header}, ratio ↑"))
    for shape, known in timings.config.shapes.items():
        for mode, header in MODES.items():
            columns.append(Column(id=f"{shape}_{mode}", header=f"{known.label}: {header} ↑"))
            columns.append(
                Column(id=f"{shape}_{mode}_ratio", header=f"{known.label}: {header}, ratio ↑")
            )
    for row in part.rows:
        for mode in MODES:
            if row.against:
                overall = timings.overall(row.run, row.against, mode)
                cells.append(_ratio(Place(row.run, f"{mode}_ratio"), overall, timings))
            for shape in timings.config.shapes:
                place = Place(row.run, f"{shape}_{mode}")
                best = timings.speeds(timings.fastest(shape, row.run, mode), mode)
                cells.append(_speed(place, best, timings, paper))
                if row.against:
                    ratios = timings.ratios(shape, row.run, row.against, mode)
                    cells.append(_ratio(Place(row.run, f"{shape}_{mode}_ratio"), ratios, timings))
    return Section(
        title=part.title,
        columns=columns,
        rows=[Row(run=row.run, label=row.label) for row in part.rows],
        cells=cells,
        notes=_notes(part, timings),
    )


def _by_backend(part: SectionSlice, timings: Timings, shape: str) -> Section:
    """Every row by every backend at one shape."""
    known = timings.config.shapes[shape]
    columns, rows, cells = [], [], []
    shared = any(
        timings.number("peak_share", Turn(shape, row.run, backend), "training") is not None
        for row in part.rows
        for backend in timings.config.backends
    )
    for mode, header in MODES.items():
        columns.append(Column(id=f"{shape}_{mode}", header=f"{header}, tokens/s ↑"))
        columns.append(Column(id=f"{shape}_{mode}_memory", header="Memory, MB ↓"))
        if shared:
            columns.append(Column(id=f"{shape}_{mode}_share", header="Share of peak ↑"))
    for row in part.rows:
        for backend in timings.config.backends:
            turn = Turn(shape, row.run, backend)
            name = f"{row.run}/{backend}"
            rows.append(Row(run=name, label=f"{row.label}, {backend}"))
            cells += [cell for mode in MODES for cell in _measured(name, turn, mode, timings)]
    return Section(
        title=f"{part.title}: {known.label}, batch of {known.batch_size}",
        columns=columns,
        rows=rows,
        cells=cells,
        notes=[_sizes(part.rows[0], timings, shape)],
    )


def _measured(name: str, turn: Turn, mode: str, timings: Timings) -> list[Cell]:
    column = f"{turn.shape}_{mode}"
    cells = [_speed(Place(name, column), timings.speeds(turn, mode), timings, Paper(None))]
    memory = timings.number("peak_bytes", turn, mode)
    share = timings.number("peak_share", turn, mode)
    if memory is not None:
        cells.append(_one(Place(name, f"{column}_memory"), memory / 1e6, 1, timings))
    if share is not None:
        cells.append(_one(Place(name, f"{column}_share"), share, 3, timings))
    return cells


def _speed(place: Place, speeds: Sequence[float], timings: Timings, paper: Paper) -> Cell:
    published = paper.number(*place)
    text = f"{count(median(speeds))} ({count(quartile(speeds, 1))} to {count(quartile(speeds, 3))})"
    return Cell(
        row=place.row,
        column=place.column,
        text=text,
        value=median(speeds),
        n=len(speeds),
        paper_value=published,
        paper_text=None if published is None else plain(published, 0),
        seeds=_rounds(speeds, 0, timings),
    )


def _ratio(place: Place, ratios: Sequence[float], timings: Timings) -> Cell:
    """Median and quartiles to read, and the t interval of the mean for the verdict."""
    found = mean_interval(ratios)
    low, high = (plain(quartile(ratios, place), DECIMALS) for place in (1, 3))
    return Cell(
        row=place.row,
        column=place.column,
        text=f"{plain(median(ratios), DECIMALS)} ({low} to {high})",
        value=median(ratios),
        std=found.std,
        ci_low=found.low,
        ci_high=found.high,
        n=found.n,
        seeds=_rounds(ratios, DECIMALS, timings),
    )


def _one(place: Place, value: float, decimals: int, timings: Timings) -> Cell:
    return Cell(
        row=place.row,
        column=place.column,
        text=plain(value, decimals),
        value=value,
        n=1,
        seeds=_rounds([value], decimals, timings),
    )


def _rounds(values: Sequence[float], decimals: int, timings: Timings) -> list[SeedValue]:
    return [
        SeedValue(
            seed=number,
            value=value,
            text=plain(value, decimals),
            job_ids=[timings.result.job_id],
        )
        for number, value in enumerate(values)
    ]


def quartile(values: Sequence[float], which: int) -> float:
    """First, second or third quartile."""
    from statistics import quantiles

    return quantiles(values, n=4, method="inclusive")[which - 1]


def _notes(part: SectionSlice, timings: Timings) -> list[str]:
    config, found = timings.config, timings.result.provenance
    machine = found.hardware.get("gpu") or found.hardware["cpu"]
    labels = {row.run: row.label for row in part.rows}
    against = {labels[row.against] for row in part.rows if row.against}
    clock = "" if config.clock == "wall" else " Seconds are those of CPU time."
    return [
        f"Measured on {machine} with {found.threads} thread{'s' * (found.threads > 1)}, "
        f"{config.precision}; it says nothing of other machines. A GPU bound by its matrix units "
        "and a CPU bound by memory may order the rows differently.",
        f"Tokens per second: median (quartiles) of {config.repeats} rounds after {config.warmup} "
        "untimed ones, in each of which every row, backend and mode has one turn; by the backend "
        "that is fastest for the row. Training is forward, loss and backward, forward has the "
        f"loss.{clock}",
        f"Ratio to {' and '.join(sorted(against))}, within a round; the first two are geometric "
        "means over the shapes. Rounds are repeats in one process, not independent runs.",
        "Memory: bytes of tensors that one call allocates at most, weights not among them.",
    ]


def _sizes(row: RowSlice, timings: Timings, shape: str) -> str:
    model = timings.result.settings["models"][row.run][shape]
    return (
        f"{model['num_layers']} layers, d_model {model['d_model']}, feed-forward "
        f"{model['ffn_dim']}, head_dim {model['attention']['head_dim']}, vocabulary "
        f"{model['vocab_size']}."
    )
