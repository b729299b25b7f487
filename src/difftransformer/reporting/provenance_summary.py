"""Where the numbers come from: one entry a job, and what all jobs have in common."""

from collections.abc import Collection, Mapping, Sequence
from os.path import commonpath
from pathlib import Path
from typing import NamedTuple

from difftransformer.provenance.result import Provenance, Result


class JobSummary(NamedTuple):
    """One job, as the report lists it; of a commit and a machine the place in their lists."""

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
    """Origins of everything in a report."""

    jobs: list[JobSummary]
    versions: list[str]
    machines: list[str]
    commits: list[str]
    total: str
    finished: str


def summarize_provenance(results: Sequence[Result], paths: Mapping[str, Path]) -> ProvenanceSummary:
    """Describe all jobs, sorted by kind, run, suite and seed; ``paths`` are their result files."""
    ordered = sorted(results, key=lambda one: (one.kind, one.run, one.suite or "", one.seed))
    machines = sorted({_machine(one.provenance) for one in ordered})
    commits = sorted({_commit(one.provenance) for one in ordered})
    files = _public_paths(paths.values())
    return ProvenanceSummary(
        jobs=[
            JobSummary(
                job_id=one.job_id,
                kind=one.kind,
                run=one.run,
                suite=one.suite or "",
                seed=one.seed,
                fingerprint=one.provenance.fingerprint,
                commit=commits.index(_commit(one.provenance)),
                machine=machines.index(_machine(one.provenance)),
                seconds=one.provenance.seconds,
                threads=one.provenance.threads,
                file=files[paths[one.job_id]],
            )
            for one in ordered
        ],
        versions=sorted({_versions(one.provenance) for one in ordered}),
        machines=machines,
        commits=commits,
        total=format_duration(sum(one.provenance.seconds for one in ordered)),
        finished=max((one.provenance.finished for one in ordered), default=""),
    )


def _public_paths(paths: Collection[Path]) -> dict[Path, str]:
    """Return shortened paths of results; absolute paths become relative to their common folder."""
    absolute = [path for path in paths if path.is_absolute()]
    parent = Path(commonpath([path.parent for path in absolute])).parent if absolute else Path()
    return {
        path: (path.relative_to(parent) if path.is_absolute() else path).as_posix()
        for path in paths
    }


def format_duration(seconds: float) -> str:
    """Write a duration in the two units that matter."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def _commit(origin: Provenance) -> str:
    return origin.git_commit[:12] + (" + changes" if origin.git_dirty else "")


def _versions(origin: Provenance) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(origin.versions.items()))


def _machine(origin: Provenance) -> str:
    known = origin.hardware
    parts = [str(known[key]) for key in ("gpu", "cpu") if key in known]
    if "cores" in known:
        parts.append(f"{known['cores']} cores")
    if "memory_gib" in known:
        parts.append(f"{known['memory_gib']} GiB")
    return ", ".join(parts) or "unknown"
