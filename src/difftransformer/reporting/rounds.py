"""Numbers by process and round of one job of timings: cells, ratios, and where they were measured.

Processes stand where other cells have seeds; the value of one is the median of its rounds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from statistics import geometric_mean, median, quantiles
from typing import Any, cast

from difftransformer.config.measurements import timing_class
from difftransformer.config.timing import BatchConfig
from difftransformer.config.validation import validate
from difftransformer.errors import UserError
from difftransformer.provenance.layout import Layout
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import Paper, Place
from difftransformer.reporting.collect import Results, defined, metric
from difftransformer.reporting.document import Cell, SeedValue
from difftransformer.reporting.numbers import count, plain

DECIMALS = 3

Rounds = Sequence[Sequence[float]]
"""A number of each round, process by process."""


class Timings:
    """The one result of a job of timings: numbers by {what}/{shape}/{row}/{backend}/{mode}.

    Args:
        results: Results of the artifact.
        name: Measurement that times.

    Attributes:
        result: The result.
        config: Settings of the measurement's own class; ``timed()`` gives ``calls``.
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
        self.calls: Mapping[str, BatchConfig] = self.config.timed()

    def number(self, what: str, *turn: str) -> float | None:
        """Another number of a turn (shape, row, backend, mode), such as peak_bytes."""
        return metric(self.result, "/".join((what, *turn)))

    def speeds(self, shape: str, row: str, backend: str, mode: str) -> Rounds:
        """Tokens per second.

        Raises:
            UserError: The row was not timed.
        """
        place, call = f"seconds/{shape}/{row}/{backend}/{mode}", self.calls[shape]
        tokens = call.seq_len * call.batch_size
        return [
            [
                tokens / defined(self.result, f"{place}/{process}/{number}")
                for number in range(self.config.repeats)
            ]
            for process in range(self.config.processes)
        ]

    def is_timed(self, *turn: str) -> bool:
        """Whether a backend took a row; where it did not, the result says so."""
        speed = "/".join(("tokens_per_second", *turn))
        return self.result.metrics.get(speed, 0.0) is not None

    def fastest(self, shape: str, row: str, mode: str) -> Rounds:
        """Speeds by the backend with the highest median, of those that took the row."""
        turns = [(shape, row, backend, mode) for backend in self.config.backends]
        return max((self.speeds(*one) for one in turns if self.is_timed(*one)), key=middle)

    def ratios(self, shape: str, row: str, against: str, mode: str) -> Rounds:
        """Speed of a row over that of another, each by its fastest backend, round by round."""
        ours, theirs = self.fastest(shape, row, mode), self.fastest(shape, against, mode)
        return _round_by_round(lambda pair: pair[0] / pair[1], [ours, theirs])

    def overall(self, shapes: Iterable[str], row: str, against: str, mode: str) -> Rounds:
        """Geometric mean of these ratios over shapes, round by round."""
        ratios = [self.ratios(shape, row, against, mode) for shape in shapes]
        return _round_by_round(geometric_mean, ratios)

    def speed_cell(self, place: Place, speeds: Rounds, paper: Paper | None = None) -> Cell:
        """Median and quartiles of tokens per second."""
        cell = self._cell(place, speeds, count, 0)
        published = None if paper is None else paper.number(*place)
        if published is None:
            return cell
        known = {"paper_value": published, "paper_text": plain(published, 0)}
        return cell.model_copy(update=known)

    def ratio_cell(self, place: Place, ratios: Rounds) -> Cell:
        """Median and quartiles; a verdict takes its interval, of the mean, from the processes."""
        return self._cell(place, ratios, partial(plain, decimals=DECIMALS), DECIMALS)

    def one_cell(self, place: Place, value: float, text: str) -> Cell:
        """A number that was found once."""
        once = SeedValue(seed=0, value=value, text="", job_ids=[self.result.job_id])
        return Cell(row=place.row, column=place.column, text=text, value=value, n=1, seeds=[once])

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
        self, place: Place, rounds: Rounds, write: Callable[[float], str], decimals: int
    ) -> Cell:
        jobs, (low, high) = [self.result.job_id], map(write, quartiles(every(rounds)))
        values = [median(one) for one in rounds]
        return Cell(
            row=place.row,
            column=place.column,
            text=f"{write(middle(rounds))} ({low} to {high})",
            value=middle(rounds),
            n=len(values),
            each="process",
            seeds=[
                SeedValue(seed=number, value=value, text=plain(value, decimals), job_ids=jobs)
                for number, value in enumerate(values)
            ],
        )


def every(rounds: Rounds) -> list[float]:
    """Numbers of the rounds of all processes."""
    return list(chain.from_iterable(rounds))


def middle(rounds: Rounds) -> float:
    """Median over the rounds of all processes."""
    return median(every(rounds))


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """First and third quartile."""
    first, _, third = quantiles(values, n=4, method="inclusive")
    return first, third


def _round_by_round(
    combine: Callable[[Sequence[float]], float], several: Sequence[Rounds]
) -> Rounds:
    """Combine the numbers that several have of the same round of the same process."""
    processes = zip(*several, strict=True)
    return [[combine(one) for one in zip(*rounds, strict=True)] for rounds in processes]
