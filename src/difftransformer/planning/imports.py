"""Modules that many jobs import, so that the warm process imports them once."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from difftransformer.planning.plan import Plan

MANY = 10
"""Minimum number of jobs that import a module for it to be preloaded."""


def common_modules(plan: Plan, artifacts: Sequence[str]) -> list[str]:
    """Return the modules that at least `MANY` jobs of the artifacts import, most common first."""
    seeds = defaultdict[tuple[str, ...], set[int]](set)
    for name in artifacts:
        for pair in plan.artifacts.evaluations(name):
            seeds["evaluate", *pair].update(plan.artifacts.seeds(name))
    for run, some in plan.trainings(artifacts).items():
        if plan.jobs.stage(run) == "adapt":
            seeds["adapt", run].update(some)
    jobs = Counter[str]()
    for job, some in seeds.items():
        jobs.update(dict.fromkeys(plan.jobs.modules(*job), len(some)))
    return [name for name, number in jobs.most_common() if number >= MANY]
