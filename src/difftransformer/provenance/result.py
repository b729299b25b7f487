"""The result file of a job: its metrics and their provenance.

Tables and figures read only these files. The job id depends only on the inputs of the job, so it is
the same on every machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from difftransformer.config.base import Settings
from difftransformer.errors import DataError
from difftransformer.provenance.checksums import read_checked, write_checked
from difftransformer.provenance.environment import Environment, capture

D = TypeVar("D", bound=Settings)
_ROUNDING = 1e-6  # relative tolerance: a metric and its items are summed in different orders
Number = int | Annotated[float, Field(allow_inf_nan=False)] | None


class Provenance(Environment):
    """Origin of a result: fingerprint, environment and times of the job."""

    fingerprint: str = Field(description="sha256 of stage, settings, code, inputs and seed")
    started: str = Field(description="Start of the job, ISO 8601, UTC")
    finished: str = Field(description="End of the job, ISO 8601, UTC")
    seconds: float = Field(
        description="Wall time of the job; of a training that was resumed of all its attempts, up "
        "to their last checkpoints"
    )


class RatioTerm(Settings):
    """One ratio in a metric: the sum of the items' values divided by the sum of their weights."""

    values: list[Annotated[float, Field(allow_inf_nan=True)]] = Field(
        description="Numerator of each item, such as its summed loss"
    )
    weights: list[float] | None = Field(
        default=None, description="Denominator of each item, such as its tokens; None: 1 each"
    )
    coefficient: float = Field(default=1.0, description="Factor of the ratio in the metric")
    item_set: str = Field(
        default="", description="Name of the items; terms of one name and size have the same items"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.weights is not None and len(self.weights) != len(self.values):
            raise ValueError(f"{len(self.values)} values, but {len(self.weights)} weights")
        return self

    def ratio(self) -> float:
        """Return the sum of values divided by the sum of weights; NaN if the weights sum to 0."""
        weight = float(len(self.values)) if self.weights is None else math.fsum(self.weights)
        return math.fsum(self.values) / weight if weight else math.nan


class PerItemScores(Settings):
    """The scores of a metric per item, where the metric is a weighted sum of ratios over items.

    Items (sampling units) of different sets are independent. Confidence intervals and verdicts use
    these scores to estimate the variance that is due to the choice of items.
    """

    item_type: str = Field(description="What the items are, in the plural, such as documents")
    terms: list[RatioTerm]

    @classmethod
    def weighted_sum(cls, parts: Iterable[tuple[float, PerItemScores]]) -> PerItemScores:
        """Return the per-item scores of a weighted sum of metrics.

        Args:
            parts: Pairs of a metric's factor in the sum and the metric's per-item scores.
        """
        summands = list(parts)
        terms = [
            term.model_copy(update={"coefficient": factor * term.coefficient})
            for factor, scores in summands
            for term in scores.terms
        ]
        return cls(item_type=summands[0][1].item_type, terms=terms)

    def total(self) -> float:
        """Return the metric as computed from its items; NaN if the weights of a ratio sum to 0."""
        return math.fsum(term.coefficient * term.ratio() for term in self.terms)

    def sums_to(self, value: float) -> bool:
        """Return whether the metric computed from the items equals ``value``, up to rounding."""
        return abs(self.total() - value) <= _ROUNDING * max(1.0, abs(value))


class Result(Settings):
    """The result of a job: its metrics, settings and provenance.

    A metric of None is undefined, such as the steps to an event that did not happen. NaN and
    infinities are refused.
    """

    kind: str = Field(description='"training", "evaluation", "analysis", ...')
    job_id: str
    scale: str
    run: str
    seed: int
    suite: str | None = None
    metrics: dict[str, Number]
    per_item: dict[str, PerItemScores] = Field(
        default={}, description="Scores by item of the metrics that are means over items"
    )
    settings: dict[str, Any] = Field(description="The resolved slice the job was given")
    provenance: Provenance


def job_id(stage: str, run: str, seed: int | None, fingerprint: str) -> str:
    """Return the id of a job: stage, run, seed if any, and the first digits of the fingerprint."""
    parts = [stage, run, *([] if seed is None else [str(seed)]), fingerprint[:10]]
    return re.sub(r"[^\w.-]+", "_", "-".join(parts))


def origin(
    fingerprint: str, *, started: datetime, threads: int, earlier: float = 0.0
) -> Provenance:
    """Return the provenance of a job that ends now.

    Args:
        fingerprint: Fingerprint of the job.
        started: Start of this attempt of the job, with a time zone.
        threads: Number of threads per operation.
        earlier: Wall time of the job's earlier attempts, in seconds.
    """
    finished = datetime.now(UTC)
    return Provenance(
        **capture(threads).model_dump(),
        fingerprint=fingerprint,
        started=started.astimezone(UTC).isoformat(timespec="seconds"),
        finished=finished.isoformat(timespec="seconds"),
        seconds=round(earlier + (finished - started).total_seconds(), 3),
    )


def write_result(path: Path, result: Result, beside: Iterable[Path] = ()) -> None:
    """Write a job's result file atomically, with checksums of the job's other output files.

    Args:
        path: The result file (JSON).
        result: The result.
        beside: Other output files of the job, in the folder of ``path`` or below.
    """
    write_checked(path, result.model_dump(mode="json"), beside)


def read_result(path: Path) -> Result:
    """Read a job's result file and verify its checksum.

    Raises:
        DataError: The file is missing, changed, or not a result; the message names the first error.
    """
    return read_document(path, Result, "result file", "rerun the job that makes it")


def read_document(path: Path, kind: type[D], what: str, cure: str) -> D:
    """Read the main output of a job (JSON) as a pydantic model and verify its checksum.

    Args:
        path: The file.
        kind: The pydantic class.
        what: Kind of file for error messages, such as "result file".
        cure: Advice for error messages: how to make the file.

    Raises:
        DataError: The file is missing, changed, or not of that class; the message names the first
            error.
    """
    try:
        return kind.model_validate_json(read_checked(path))
    except FileNotFoundError:
        raise DataError(f"{path}: no such {what}; {cure}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; {cure}") from None
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(map(str, fault["loc"])) or "file"
        raise DataError(
            f"{path}: not a complete {what} ({field}: {fault['msg']}); delete it and {cure}"
        ) from None
