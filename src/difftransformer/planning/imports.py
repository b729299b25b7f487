"""What many jobs of a workflow import, so that it can be done once for all of them."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from difftransformer.planning.plan import Plan

MANY = 10
"""Jobs from which it is worth while."""


def common_modules(plan: Plan, artifacts: Sequence[str]) -> list[str]:
    """Return the modules that many jobs of artifacts import beside what all do, commonest first."""
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
