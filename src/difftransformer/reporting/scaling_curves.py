"""Loss by size or by training tokens: the measured points of each row, and curves through them."""

from collections.abc import Sequence
from typing import NamedTuple

from difftransformer.config.artifact_slices import ArtifactSlice, FamilySlice, SectionSlice
from difftransformer.config.scaling import ScalingConfig
from difftransformer.errors import DataError
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import seed_values
from difftransformer.reporting.collect import Results, defined
from difftransformer.reporting.curves import same_steps
from difftransformer.reporting.document import SeedValue
from difftransformer.reporting.scaling_fit import (
    PowerLaw,
    Reading,
    fit_power_law,
    read_equal_loss,
)

DECIMALS = 3
COUNTS = {"one_embedding": "one embedding", "non_embedding": "no embedding", "total": "all"}
"""Ways to count parameters, values of scaling.parameters, in the words of headers."""
Sample = Sequence[int]
"""Indices of seeds, each as often as it counts."""


class Point(NamedTuple):
    """A loss by seed at a size, or at a number of training tokens."""

    row: str
    run: str
    x: float
    seeds: list[SeedValue]

    def mean(self, sample: Sample) -> float:
        """Mean loss of a sample of seeds."""
        values = [value for seed in sample if (value := self.seeds[seed].value) is not None]
        assert len(values) == len(sample), self.row
        return sum(values) / len(values)


class Line(NamedTuple):
    """The points of one row of the artifact, from the smallest x to the largest."""

    family: FamilySlice
    points: list[Point]


class Curves:
    """Curves of all lines, fitted to any sample of the seeds; each is fitted once."""

    def __init__(self, lines: Sequence[Line], scaling: ScalingConfig, seeds: int) -> None:
        self.everyone: Sample = range(seeds)
        self._points = {line.family.run: line.points for line in lines}
        self._scaling = scaling
        self._fits: dict[tuple[str, tuple[int, ...]], PowerLaw] = {}

    def curve(self, run: str, sample: Sample) -> PowerLaw:
        """Return the curve through a row's mean losses over a sample of seeds."""
        key = (run, tuple(sample))
        if key not in self._fits:
            points = self._points[run]
            self._fits[key] = fit_power_law(
                [point.x for point in points],
                [point.mean(sample) for point in points],
                offset=has_offset(len(points), self._scaling),
            )
        return self._fits[key]

    def reading(self, family: FamilySlice, x: float, sample: Sample) -> Reading:
        """Return where the row compared with has the loss that this row's curve has at x."""
        assert family.against is not None
        ours, theirs = self.curve(family.run, sample), self.curve(family.against, sample)
        return read_equal_loss(ours, theirs, x)

    def read_at(self, run: str) -> float:
        """Return where a row is read: at a share of its largest x, or at its smallest if larger."""
        points = self._points[run]
        return max(self._scaling.read_at * points[-1].x, points[0].x)


def has_offset(points: int, scaling: ScalingConfig) -> bool:
    """Whether so many points are enough for a curve with an offset."""
    return points >= scaling.offset_from


def measured_lines(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[Line]:
    """Collect the points of every row of a section.

    Raises:
        UserError: a result or a history is missing, or a loss is undefined.
        DataError: a history is too short for a curve, or rows differ in their points.
    """
    measured = _by_size if part.measures == "size_scaling" else _by_tokens
    lines = [Line(family, measured(artifact, part, family, results)) for family in part.families]
    for line in lines[1:]:
        if len(line.points) != len(lines[0].points):
            raise DataError(
                f"{line.family.run} has {len(line.points)} points and {lines[0].family.run} "
                f"{len(lines[0].points)}: rerun the one with the older settings"
            )
        if measured is _by_tokens and [p.x for p in line.points] != [p.x for p in lines[0].points]:
            raise DataError(
                f"{line.family.run} and {lines[0].family.run} were validated after different "
                "numbers of tokens: give them the same budget and validate_every"
            )
    return lines


def parameters(result: Result, counted: str) -> float:
    """Size of a model: ``counted`` is a value of the setting scaling.parameters."""
    if counted == "total":
        return defined(result, "parameters")
    size = defined(result, "non_embedding_parameters")
    if counted == "one_embedding":
        model = result.settings["model"]
        size += model["vocab_size"] * model["d_model"]
    return size


def _by_size(
    artifact: ArtifactSlice, part: SectionSlice, family: FamilySlice, results: Results
) -> list[Point]:
    assert part.scaling is not None
    points = []
    for run in family.members:
        trained = results.training(run, artifact.seeds[0])
        found = [results.evaluation(part.suites[0], run, seed) for seed in artifact.seeds]
        losses = [(result, defined(result, "loss")) for result in found]
        size = parameters(trained, part.scaling.parameters)
        points.append(Point(run, run, size, seed_values(losses, DECIMALS)))
    return sorted(points, key=lambda point: point.x)


def _by_tokens(
    artifact: ArtifactSlice, part: SectionSlice, family: FamilySlice, results: Results
) -> list[Point]:
    """Read validation losses along the one run of the family with the largest budget."""
    assert part.scaling is not None
    run = family.members[-1]
    trained = [results.training(run, seed) for seed in artifact.seeds]
    series = same_steps(
        run,
        {seed: results.histories.series(run, seed, "validation_loss") for seed in artifact.seeds},
    )
    tokens = series[0].tokens
    if not tokens:
        raise DataError(f"history of {run}: no validation loss: it diverged before the first one")
    targets = [tokens[-1] * (k + 1) / part.scaling.points for k in range(part.scaling.points)]
    places = sorted({_nearest(tokens, target) for target in targets})
    if len(places) < 2:
        raise DataError(
            f"history of {run}: {len(tokens)} validation is no curve: set validate_every in its "
            "setup so that there are several"
        )
    return [
        Point(
            row=f"{run}@{tokens[place]}",
            run=run,
            x=float(tokens[place]),
            seeds=seed_values(
                [(one, found.values[place]) for one, found in zip(trained, series, strict=True)],
                DECIMALS,
            ),
        )
        for place in places
    ]


def _nearest(tokens: Sequence[int], target: float) -> int:
    return min(range(len(tokens)), key=lambda place: abs(tokens[place] - target))
