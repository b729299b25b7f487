"""Provenance of a report: one entry per job, and the machines, commits and versions."""

from collections.abc import Collection, Mapping, Sequence
from os.path import commonpath
from pathlib import Path
from typing import NamedTuple

from difftransformer.provenance.result import Provenance, Result


class JobSummary(NamedTuple):
    """Provenance of one job; commit and machine are indices into lists of `ProvenanceSummary`."""

    job_id: str
    kind: str
    run: str
    suite: str
    seed: int
    fingerprint: str
    commit: int
    machine: int
    seconds: float
    threads: int
    file: str


class ProvenanceSummary(NamedTuple):
    """Provenance of all numbers in a report: jobs, machines, commits, versions."""

    jobs: list[JobSummary]
    versions: list[str]
    machines: list[str]
    commits: list[str]
    total: str
    finished: str


def summarize_provenance(results: Sequence[Result], paths: Mapping[str, Path]) -> ProvenanceSummary:
    """Return the provenance of results, with jobs sorted by kind, run, suite and seed.

    ``paths`` are the result files by job id.
    """
    ordered = sorted(results, key=lambda job: (job.kind, job.run, job.suite or "", job.seed))
    machines = sorted({_machine(job.provenance) for job in ordered})
    commits = sorted({_commit(job.provenance) for job in ordered})
    files = _public_paths(paths.values())
    return ProvenanceSummary(
        jobs=[
            JobSummary(
                job_id=job.job_id,
                kind=job.kind,
                run=job.run,
                suite=job.suite or "",
                seed=job.seed,
                fingerprint=job.provenance.fingerprint,
                commit=commits.index(_commit(job.provenance)),
                machine=machines.index(_machine(job.provenance)),
                seconds=job.provenance.seconds,
                threads=job.provenance.threads,
                file=files[paths[job.job_id]],
            )
            for job in ordered
        ],
        versions=sorted({_versions(job.provenance) for job in ordered}),
        machines=machines,
        commits=commits,
        total=format_duration(sum(job.provenance.seconds for job in ordered)),
        finished=max((job.provenance.finished for job in ordered), default=""),
    )


def _public_paths(paths: Collection[Path]) -> dict[Path, str]:
    """Return paths as published; absolute paths become relative to their common folder."""
    absolute = [path for path in paths if path.is_absolute()]
    parent = Path(commonpath([path.parent for path in absolute])).parent if absolute else Path()
    return {
        path: (path.relative_to(parent) if path.is_absolute() else path).as_posix()
        for path in paths
    }


def format_duration(seconds: float) -> str:
    """Return a duration in seconds as text, in its two largest units."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, remainder = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {remainder} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def _commit(origin: Provenance) -> str:
    return origin.git_commit[:12] + (" + changes" if origin.git_dirty else "")


def _versions(origin: Provenance) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(origin.versions.items()))


def _machine(origin: Provenance) -> str:
    hardware = origin.hardware
    parts = [str(hardware[key]) for key in ("gpu", "cpu") if key in hardware]
    if "cores" in hardware:
        parts.append(f"{hardware['cores']} cores")
    if "memory_gib" in hardware:
        parts.append(f"{hardware['memory_gib']} GiB")
    return ", ".join(parts) or "unknown"
