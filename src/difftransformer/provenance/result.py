"""The result file: the numbers of one job with everything about their origin.

Reports read these files and nothing else. The job id is made of what the result depends on, so the
same job has the same id on every machine; times are in here and never in a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from difftransformer.config.base import Settings
from difftransformer.errors import DataError
from difftransformer.provenance.environment import Environment, capture
from difftransformer.provenance.published import publish, read_published

TRAINING = "training.json"
"""Result file of a training, in the folder of its model."""

Number = int | Annotated[float, Field(allow_inf_nan=False)] | None


class Provenance(Environment):
    """Origin of a result: fingerprint, environment, times."""

    fingerprint: str = Field(description="sha256 of stage, settings, code, inputs and seed")
    started: str = Field(description="Start of the job, ISO 8601, UTC")
    finished: str = Field(description="End of the job, ISO 8601, UTC")
    seconds: float = Field(description="Wall time of the job, of its last attempt if resumed")


class Result(Settings):
    """What a job found out. A metric of None is undefined, such as the steps to an event that
    did not happen; NaN and infinities are refused.
    """

    kind: str = Field(description='"training", "evaluation", "analysis", ...')
    job_id: str
    scale: str
    run: str
    seed: int
    suite: str | None = None
    metrics: dict[str, Number]
    settings: dict[str, Any] = Field(description="The resolved slice the job was given")
    provenance: Provenance


def job_id(stage: str, run: str, seed: int | None, fingerprint: str) -> str:
    """Deterministic id of a job: stage, run, seed where there is one, start of the fingerprint."""
    parts = [stage, run, *([] if seed is None else [str(seed)]), fingerprint[:10]]
    return re.sub(r"[^\w.-]+", "_", "-".join(parts))


def origin(fingerprint: str, *, started: datetime, threads: int) -> Provenance:
    """Collect the provenance of a job that ends now; ``started`` is an aware time."""
    finished = datetime.now(UTC)
    return Provenance(
        **capture(threads).model_dump(),
        fingerprint=fingerprint,
        started=started.astimezone(UTC).isoformat(timespec="seconds"),
        finished=finished.isoformat(timespec="seconds"),
        seconds=round((finished - started).total_seconds(), 3),
    )


def write_result(path: Path, result: Result, beside: Iterable[Path] = ()) -> None:
    """Write a result atomically, with the digests of all files that its job left ``beside``."""
    publish(path, result.model_dump(mode="json"), beside)


def read_result(path: Path) -> Result:
    """Read a result file.

    Raises:
        DataError: missing, changed since it was written, not JSON, or not a result; names the file
            and the first fault.
    """
    try:
        return Result.model_validate_json(read_published(path))
    except FileNotFoundError:
        raise DataError(f"{path}: no such result file; run the job that makes it") from None
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"])) or "file"
        raise DataError(
            f"{path}: not a whole result file ({where}: {fault['msg']}); delete it and rerun"
        ) from None
