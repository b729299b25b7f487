"""Results of a timing job by process and round, as cells and ratios.

A cell has processes in place of seeds; the value of a process is the median of its rounds.

Shapes: P = processes, R = rounds of each process.
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
from difftransformer.reporting.number_format import format_count, format_number, pluralize

DECIMALS = 3

RoundValues = NDArray[np.float64]
"""One number per process and round, [P, R]."""


class TimingResults:
    """The result of a timing job, whose metrics are {metric}/{shape}/{row}/{backend}/{mode}.

    Args:
        results: Results of the table or figure.
        name: Name of the evaluation that measured the timings.

    Attributes:
        result: The result of the timing job.
        config: Settings of the evaluation.
        calls: Batch size and sequence length of a timed call, by shape.

    Raises:
        UserError: The result is missing, or has no valid settings.
    """

    def __init__(self, results: Results, name: str) -> None:
        result, scale = results.evaluations.get((name, name, 0)), results.scale
        if result is None:
            raise UserError(
                f"no timings of {name} at scale {scale}; build them with "
                f"`snakemake {Layout('results', scale).timings(name)} --config scale={scale}`"
            )
        self.result: Result = result
        try:
            kind = cast(type[Any], timing_class(name))
            self.config = validate(kind, result.settings["config"], "config")
        except (KeyError, UserError):
            raise UserError(
                f"{result.job_id}: has no valid settings of {name}; rerun the job"
            ) from None
        self.calls: Mapping[str, BatchConfig] = self.config.calls()

    def number(self, metric: str, *condition: str) -> float | None:
        """Return a metric, such as peak_bytes, of a condition (shape, row, backend, mode)."""
        return get_metric(self.result, "/".join((metric, *condition)))

    def speeds(self, *condition: str) -> RoundValues:
        """Return the tokens per second of a condition in each process and round.

        A condition is (shape, row, backend, mode).

        Raises:
            UserError: The condition was not timed.
        """
        prefix, call = "/".join(("seconds", *condition)), self.calls[condition[0]]
        seconds = [
            [require_metric(self.result, f"{prefix}/{p}/{r}") for r in range(self.config.repeats)]
            for p in range(self.config.processes)
        ]
        return call.seq_len * call.batch_size / np.array(seconds)

    def is_timed(self, *condition: str) -> bool:
        """Return whether a condition was timed, that is, whether the backend supports the row."""
        speed = "/".join(("tokens_per_second", *condition))
        return self.result.metrics.get(speed, 0.0) is not None

    def fastest(self, shape: str, row: str, mode: str) -> RoundValues:
        """Return a row's speeds in each round with the backend whose median speed is highest.

        Only backends that support the row are considered.
        """
        conditions = [(shape, row, backend, mode) for backend in self.config.backends]
        return max((self.speeds(*c) for c in conditions if self.is_timed(*c)), key=np.median)

    def ratios(self, shape: str, row: str, baseline: str, mode: str) -> RoundValues:
        """Return a row's speed over the baseline's in each round, each with its fastest backend."""
        return self.fastest(shape, row, mode) / self.fastest(shape, baseline, mode)

    def speed_cell(
        self, key: CellKey, speeds: RoundValues, published: PublishedValues | None = None
    ) -> Cell:
        """Return a cell with the median and the quartiles of tokens per second."""
        paper_value = None if published is None else published.number(*key)
        return self._cell(key, speeds, format_count, 0).model_copy(
            update={
                "paper_value": paper_value,
                "paper_text": None if paper_value is None else format_number(paper_value, 0),
            }
        )

    def ratio_cells(
        self, row: ResolvedRow, shapes: Iterable[str], mode: str, column: str
    ) -> Iterator[Cell]:
        """Yield cells with median and quartiles of a row's speed ratios to its baseline, if any.

        ``column`` is the id of the column for the geometric mean over shapes of each round. The
        columns {shape}_{column} follow. Verdicts use the interval of the mean over processes
        instead.
        """
        if row.baseline is None:
            return
        ratios = {f"{s}_{column}": self.ratios(s, row.run, row.baseline, mode) for s in shapes}
        overall = np.apply_along_axis(geometric_mean, 0, np.array([*ratios.values()]))
        for name, rounds in ({column: overall} | ratios).items():
            key = CellKey(row.run, name)
            yield self._cell(key, rounds, lambda ratio: format_number(ratio, DECIMALS), DECIMALS)

    def single_cell(self, key: CellKey, value: float, text: str) -> Cell:
        """Return a cell with a number that was measured once."""
        seed = SeedValue(seed=0, value=value, text="", job_ids=[self.result.job_id])
        return Cell(row=key.row, column=key.column, text=text, value=value, n=1, seeds=[seed])

    def columns(self, suffix: str, arrow: str) -> list[Column]:
        """Return one column per timed shape."""
        return [
            Column(id=f"{shape}{suffix}", header=f"{call.label} {arrow}")
            for shape, call in self.calls.items()
        ]

    def machine_note(self) -> str:
        """Return a table note on the machine on which the timings were measured."""
        origin = self.result.provenance
        machine = origin.hardware.get("gpu") or origin.hardware["cpu"]
        return (
            f"Measured on {machine} with {pluralize(origin.threads, 'thread')}, "
            f"{self.config.precision}; other machines may differ."
        )

    def rounds_note(self, conditions: str) -> str:
        """Return a table note on the timing rounds, in which all ``conditions`` are interleaved."""
        config = self.config
        clock = "" if config.clock == "wall" else " Seconds are CPU time."
        return (
            f"median (quartiles) over the rounds of {config.processes} processes, which run one "
            f"after the other. A process measures {config.repeats} rounds after {config.warmup} "
            f"warmup rounds; in a round every {conditions} is timed once. Backend: the fastest for "
            f"the row ({', '.join(config.backends)}). Rounds of a process are correlated, so "
            f"verdicts use the median of each process.{clock}"
        )

    def _cell(
        self, key: CellKey, rounds: RoundValues, write: Callable[[float], str], decimals: int
    ) -> Cell:
        jobs, median = [self.result.job_id], float(np.median(rounds))
        low, high = map(write, quartiles(rounds))
        values = np.median(rounds, axis=1).tolist()
        return Cell(
            row=key.row,
            column=key.column,
            text=f"{write(median)} ({low} to {high})",
            value=median,
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
    """Return the first and third quartile of values."""
    low, high = np.quantile(values, (0.25, 0.75))
    return float(low), float(high)
