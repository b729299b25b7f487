"""Where the numbers come from: one entry a job, and what all jobs have in common."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from difftransformer.provenance.result import Provenance, Result


class JobOrigin(NamedTuple):
    """One job, as the report lists it."""

    job_id: str
    kind: str
    run: str
    suite: str
    seed: int
    fingerprint: str
    commit: str
    seconds: str
    hardware: str
    threads: int


class RunSettings(NamedTuple):
    """Resolved settings of a run; its seeds share them."""

    run: str
    settings: str


class Origins(NamedTuple):
    """Origins of everything in a report."""

    jobs: list[JobOrigin]
    runs: list[RunSettings]
    versions: list[str]
    hardware: list[str]
    commits: list[str]
    total: str


def describe(results: Sequence[Result]) -> Origins:
    """Describe all jobs, sorted by kind, run, suite and seed."""
    ordered = sorted(results, key=lambda one: (one.kind, one.run, one.suite or "", one.seed))
    settings: dict[str, str] = {}
    for one in ordered:
        if one.kind == "training":
            settings.setdefault(one.run, json.dumps(one.settings, indent=1, sort_keys=True))
    return Origins(
        jobs=[_job(one) for one in ordered],
        runs=[RunSettings(run, text) for run, text in settings.items()],
        versions=sorted({_versions(one.provenance) for one in ordered}),
        hardware=sorted({_hardware(one.provenance) for one in ordered}),
        commits=sorted({_commit(one.provenance) for one in ordered}),
        total=duration(sum(one.provenance.seconds for one in ordered)),
    )


def duration(seconds: float) -> str:
    """Write a duration in the two units that matter."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def _job(result: Result) -> JobOrigin:
    origin = result.provenance
    return JobOrigin(
        job_id=result.job_id,
        kind=result.kind,
        run=result.run,
        suite=result.suite or "",
        seed=result.seed,
        fingerprint=origin.fingerprint,
        commit=_commit(origin),
        seconds=duration(origin.seconds),
        hardware=_hardware(origin),
        threads=origin.threads,
    )


def _commit(origin: Provenance) -> str:
    return origin.git_commit[:12] + (" + changes" if origin.git_dirty else "")


def _versions(origin: Provenance) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(origin.versions.items()))


def _hardware(origin: Provenance) -> str:
    known = origin.hardware
    parts = [str(known[key]) for key in ("gpu", "cpu") if key in known]
    if "cores" in known:
        parts.append(f"{known['cores']} cores")
    if "memory_gib" in known:
        parts.append(f"{known['memory_gib']} GiB")
    return ", ".join(parts) or "unknown"
