"""Numbers by process and round of one job of timings: cells, ratios, and where they were measured.

Processes stand where other cells have seeds; the value of one is the median of its rounds.

Shapes: P = processes, R = rounds of each.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from difftransformer.config.evaluations import timing_class
from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.config.timing import BatchConfig
from difftransformer.config.validation import validate
from difftransformer.errors import UserError
from difftransformer.provenance.layout import Layout
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import CellKey, PublishedValues
from difftransformer.reporting.collect import Results, get_metric, require_metric
from difftransformer.reporting.document import Cell, Column, SeedValue
from difftransformer.reporting.number_format import format_count, format_number

DECIMALS = 3

RoundValues = NDArray[np.float64]
"""A number of each round, [P, R]."""


class TimingResults:
    """The one result of a job of timings: numbers by {what}/{shape}/{row}/{backend}/{mode}.

    Args:
        results: Results of the artifact.
        name: Evaluation that times.

    Attributes:
        result: The result.
        config: Settings of the evaluation's own class.
        calls: What one call is given, by shape.

    Raises:
        UserError: There is no such result, or it was made with other settings.
    """

    def __init__(self, results: Results, name: str) -> None:
        found, scale = results.evaluations.get((name, name, 0)), results.scale
        if found is None:
            raise UserError(
                f"no timings of {name} at scale {scale}: make them with "
                f"`snakemake {Layout('results', scale).timings(name)} --config scale={scale}`"
            )
        self.result: Result = found
        try:
            kind = cast(type[Any], timing_class(name))
            self.config = validate(kind, found.settings["config"], "config")
        except (KeyError, UserError):
            raise UserError(f"{found.job_id}: has no settings of {name}: rerun") from None
        self.calls: Mapping[str, BatchConfig] = self.config.calls()

    def number(self, what: str, *turn: str) -> float | None:
        """Another number of a turn (shape, row, backend, mode), such as peak_bytes."""
        return get_metric(self.result, "/".join((what, *turn)))

    def speeds(self, *turn: str) -> RoundValues:
        """Tokens per second of a turn.

        Raises:
            UserError: The row was not timed.
        """
        place, call = "/".join(("seconds", *turn)), self.calls[turn[0]]
        seconds = [
            [require_metric(self.result, f"{place}/{p}/{r}") for r in range(self.config.repeats)]
            for p in range(self.config.processes)
        ]
        return call.seq_len * call.batch_size / np.array(seconds)

    def is_timed(self, *turn: str) -> bool:
        """Whether a backend took a row; where it did not, the result says so."""
        speed = "/".join(("tokens_per_second", *turn))
        return self.result.metrics.get(speed, 0.0) is not None

    def fastest(self, shape: str, row: str, mode: str) -> RoundValues:
        """Speeds by the backend with the highest median, of those that took the row."""
        turns = [(shape, row, backend, mode) for backend in self.config.backends]
        return max((self.speeds(*one) for one in turns if self.is_timed(*one)), key=np.median)

    def ratios(self, shape: str, row: str, baseline: str, mode: str) -> RoundValues:
        """Speed of a row over that of another, each by its fastest backend, round by round."""
        return self.fastest(shape, row, mode) / self.fastest(shape, baseline, mode)

    def speed_cell(
        self, place: CellKey, speeds: RoundValues, paper: PublishedValues | None = None
    ) -> Cell:
        """Median and quartiles of tokens per second."""
        published = None if paper is None else paper.number(*place)
        return self._cell(place, speeds, format_count, 0).model_copy(
            update={
                "paper_value": published,
                "paper_text": None if published is None else format_number(published, 0),
            }
        )

    def ratio_cells(
        self, row: ResolvedRow, shapes: Iterable[str], mode: str, column: str
    ) -> Iterator[Cell]:
        """Median and quartiles of ratios to the row that a row is compared with, if there is one.

        Under ``column`` of their geometric mean over shapes, round by round, then by shape. A
        verdict takes its interval, of the mean, from the processes.
        """
        if row.baseline is None:
            return
        baseline = row.baseline
        ratios = {f"{one}_{column}": self.ratios(one, row.run, baseline, mode) for one in shapes}
        overall = np.apply_along_axis(geometric_mean, 0, np.array([*ratios.values()]))
        for name, rounds in ({column: overall} | ratios).items():
            place = CellKey(row.run, name)
            yield self._cell(place, rounds, lambda ratio: format_number(ratio, DECIMALS), DECIMALS)

    def one_cell(self, place: CellKey, value: float, text: str) -> Cell:
        """A number that was found once."""
        once = SeedValue(seed=0, value=value, text="", job_ids=[self.result.job_id])
        return Cell(row=place.row, column=place.column, text=text, value=value, n=1, seeds=[once])

    def columns(self, ending: str, arrow: str) -> list[Column]:
        """Columns for the numbers of every shape."""
        return [
            Column(id=f"{shape}{ending}", header=f"{call.label} {arrow}")
            for shape, call in self.calls.items()
        ]

    def machine_note(self) -> str:
        """Say where the timings were taken, in one sentence."""
        found = self.result.provenance
        machine = found.hardware.get("gpu") or found.hardware["cpu"]
        return (
            f"Measured on {machine} with {found.threads} thread{'s' * (found.threads > 1)}, "
            f"{self.config.precision}; it says nothing of other machines."
        )

    def rounds_note(self, turns: str) -> str:
        """Say how rounds were made and read; ``turns`` are what has one in each."""
        config = self.config
        clock = "" if config.clock == "wall" else " Seconds are those of CPU time."
        return (
            f"median (quartiles) of all rounds of {config.processes} processes, each started anew "
            f"after the one before. A process takes {config.repeats} rounds after {config.warmup} "
            f"untimed ones; in each every {turns} has one turn. By the backend that is fastest for "
            f"the row ({', '.join(config.backends)}). Rounds of a process share its chance, so "
            f"verdicts are over processes, by the median of each one's rounds.{clock}"
        )

    def _cell(
        self, place: CellKey, rounds: RoundValues, write: Callable[[float], str], decimals: int
    ) -> Cell:
        jobs, middle = [self.result.job_id], float(np.median(rounds))
        low, high = map(write, quartiles(rounds))
        values = np.median(rounds, axis=1).tolist()
        return Cell(
            row=place.row,
            column=place.column,
            text=f"{write(middle)} ({low} to {high})",
            value=middle,
            n=len(values),
            each="process",
            seeds=[
                SeedValue(
                    seed=number, value=value, text=format_number(value, decimals), job_ids=jobs
                )
                for number, value in enumerate(values)
            ],
        )


def quartiles(values: RoundValues | Sequence[float]) -> tuple[float, float]:
    """First and third quartile."""
    low, high = np.quantile(values, (0.25, 0.75))
    return float(low), float(high)
