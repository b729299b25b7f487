"""Result files of an artifact by run, seed and suite; errors name the command that is missing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import NoReturn

from difftransformer.config.judges import judged_suite
from difftransformer.errors import DataError, UserError
from difftransformer.models.config import layer_metric
from difftransformer.provenance.checksums import verify_file
from difftransformer.provenance.layout import HISTORY, Layout
from difftransformer.provenance.result import Result, read_result
from difftransformer.reporting.histories import Histories


@dataclass(frozen=True)
class Results:
    """Training results by (run, seed) and evaluation results by (suite, run, seed), of one scale.

    Raises:
        UserError: In every method, if a result or file is missing; the message names the run, the
            seed and the command that creates it.
    """

    scale: str
    trainings: Mapping[tuple[str, int], Result]
    evaluations: Mapping[tuple[str, str, int], Result]
    paths: Mapping[str, Path]
    """Result files by the id of their job."""

    @cached_property
    def histories(self) -> Histories:
        """Training histories of the runs, which are read when used."""
        return Histories(
            {
                key: self.paths[training.job_id].with_name(HISTORY)
                for key, training in self.trainings.items()
            }
        )

    def training(self, run: str, seed: int) -> Result:
        """Return the training result of a run and seed."""
        result, path = self.trainings.get((run, seed)), self._layout.training(run, seed)
        return result or self._raise_missing("training", run, seed, path)

    def evaluation(self, suite: str, run: str, seed: int) -> Result:
        """Return the result of an evaluation suite for a run and seed."""
        result = self.evaluations.get((suite, run, seed))
        path = self._layout.evaluation(suite, run, seed)
        return result or self._raise_missing(f"evaluation '{suite}'", run, seed, path)

    def judgment(self, suite: str, judge: str, run: str, seed: int) -> Result:
        """Return the result of a judge that scored the answers of a suite for a run and seed."""
        result = self.evaluations.get((judged_suite(suite, judge), run, seed))
        path = self._layout.judgment(judge, suite, run, seed)
        return result or self._raise_missing(f"judgment by '{judge}'", run, seed, path)

    def detail(self, suite: str, run: str, seed: int, name: str) -> Path:
        """Return the path of the file ``name`` that an evaluation wrote next to its result.

        Raises:
            DataError: The file does not match its checksum.
        """
        result = self.paths[self.evaluation(suite, run, seed).job_id]
        path = result.with_suffix("") / name
        if not path.is_file():
            details = self._layout.details(suite, run, seed)
            self._raise_missing(f"{name} of evaluation '{suite}'", run, seed, details)
        verify_file(path, result)
        return path

    @property
    def _layout(self) -> Layout:
        return Layout("results", self.scale)

    def all_results(self) -> list[Result]:
        """Return all results, those of trainings first."""
        return [*self.trainings.values(), *self.evaluations.values()]

    def _raise_missing(self, kind: str, run: str, seed: int, path: str) -> NoReturn:
        raise UserError(
            f"no {kind} of run '{run}' with seed {seed} at scale {self.scale}; build it with "
            f"`snakemake {path} --config scale={self.scale}`"
        )


def load_results(paths: Iterable[Path], scale: str) -> Results:
    """Return the results in result files of one scale.

    Raises:
        DataError: A file is missing or damaged, or two files have the same run, suite and seed.
        UserError: A result belongs to another scale.
    """
    trainings: dict[tuple[str, int], Result] = {}
    evaluations: dict[tuple[str, str, int], Result] = {}
    by_job: dict[str, Path] = {}
    for path in sorted(set(paths)):
        result = read_result(path)
        if result.scale != scale:
            raise UserError(
                f"{path}: is of scale {result.scale}, the artifact of scale {scale}; "
                "pass results of one scale"
            )
        by_job[result.job_id] = path
        if result.kind == "training":
            first = trainings.setdefault((result.run, result.seed), result)
        else:
            key = (result.suite or result.kind, result.run, result.seed)
            first = evaluations.setdefault(key, result)
        if first is not result:
            raise DataError(
                f"{path}: a second {result.kind} result of run {result.run}, seed {result.seed}, "
                f"besides {first.job_id}; pass one of them"
            )
    return Results(scale, trainings, evaluations, by_job)


def get_metric(result: Result, name: str) -> float | None:
    """Return a metric of a result as a float, or None if the job recorded it as undefined.

    Raises:
        UserError: The result lacks the metric; the message names the run and similar metrics.
    """
    if name not in result.metrics:
        source = f"{result.kind} result" if result.suite is None else f"suite '{result.suite}'"
        nearest = get_close_matches(name, result.metrics, n=3, cutoff=0)
        raise UserError(
            f"{source} of run {result.run}, seed {result.seed}, scale {result.scale} has no metric "
            f"'{name}' (nearest of its {len(result.metrics)}: {', '.join(nearest)}): change "
            "the settings to measure it, or remove the column from the artifact"
        )
    value = result.metrics[name]
    return None if value is None else float(value)


def count_layers(name: str, results: Iterable[Result]) -> int:
    """Return the number of layers of the deepest model in results, by a metric of each layer."""
    return max(
        next(layer for layer in count() if layer_metric(name, layer) not in result.metrics)
        for result in results
    )


def require_metric(result: Result, name: str) -> float:
    """Return a metric of a result as a float, where it must be defined, as in a figure.

    Raises:
        UserError: The result lacks the metric, or the metric is undefined.
    """
    value = get_metric(result, name)
    if value is None:
        raise UserError(f"{result.job_id}: {name} is undefined; rerun the job")
    return value
