"""Tokens per second, memory and ratios of the throughput job, by shape and over shapes."""

from statistics import median
from typing import NamedTuple

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice
from difftransformer.config.throughput import ThroughputConfig
from difftransformer.reporting.cells import Paper, Place
from difftransformer.reporting.collect import Results, defined, metric
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.numbers import plain
from difftransformer.reporting.rounds import (
    DECIMALS,
    geometric_means,
    machine_note,
    one_cell,
    quotients,
    ratio_cell,
    rounds_note,
    speed_cell,
    timed_with,
)

MODES = {"training": "Training", "forward": "Forward"}


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
        self.result, self.config = timed_with(results, "throughput", ThroughputConfig)

    def seconds(self, turn: Turn, mode: str) -> list[float]:
        """Seconds of each round.

        Raises:
            UserError: The row was not timed.
        """
        names = [
            f"seconds/{turn.shape}/{turn.row}/{turn.backend}/{mode}/{number}"
            for number in range(self.config.repeats)
        ]
        return [defined(self.result, name) for name in names]

    def speeds(self, turn: Turn, mode: str) -> list[float]:
        """Tokens per second of each round."""
        shape = self.config.timed()[turn.shape]
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
        return quotients(self.speeds(ours, mode), self.speeds(theirs, mode))

    def overall(self, row: str, against: str, mode: str) -> list[float]:
        """Geometric mean of these ratios over shapes, round by round."""
        return geometric_means(
            [self.ratios(shape, row, against, mode) for shape in self.config.shapes]
        )


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
    paper, job = Paper(artifact.paper), timings.result.job_id
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
                cells.append(ratio_cell(Place(row.run, f"{mode}_ratio"), overall, job))
            for shape in timings.config.shapes:
                place = Place(row.run, f"{shape}_{mode}")
                best = timings.speeds(timings.fastest(shape, row.run, mode), mode)
                cells.append(speed_cell(place, best, job, paper))
                if row.against:
                    ratios = timings.ratios(shape, row.run, row.against, mode)
                    cells.append(ratio_cell(Place(row.run, f"{shape}_{mode}_ratio"), ratios, job))
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
    column, job = f"{turn.shape}_{mode}", timings.result.job_id
    cells = [speed_cell(Place(name, column), timings.speeds(turn, mode), job, Paper(None))]
    memory = timings.number("peak_bytes", turn, mode)
    share = timings.number("peak_share", turn, mode)
    if memory is not None:
        cells.append(
            one_cell(Place(name, f"{column}_memory"), memory / 1e6, plain(memory / 1e6, 1), job)
        )
    if share is not None:
        cells.append(one_cell(Place(name, f"{column}_share"), share, plain(share, DECIMALS), job))
    return cells


def _notes(part: SectionSlice, timings: Timings) -> list[str]:
    config = timings.config
    labels = {row.run: row.label for row in part.rows}
    against = {labels[row.against] for row in part.rows if row.against}
    return [
        f"{machine_note(timings.result, config)} A GPU bound by its matrix units and a CPU bound "
        "by memory may order the rows differently.",
        f"Tokens per second: {rounds_note(config, 'row, backend and mode')} Training is forward, "
        "loss and backward, forward has the loss.",
        f"Ratio to {' and '.join(sorted(against))}, within a round; the first two are geometric "
        "means over the shapes.",
        "Memory: bytes of tensors that one call allocates at most, weights not among them.",
    ]


def _sizes(row: RowSlice, timings: Timings, shape: str) -> str:
    model = timings.result.settings["models"][row.run][shape]
    return (
        f"{model['num_layers']} layers, d_model {model['d_model']}, feed-forward "
        f"{model['ffn_dim']}, head_dim {model['attention']['head_dim']}, vocabulary "
        f"{model['vocab_size']}."
    )
