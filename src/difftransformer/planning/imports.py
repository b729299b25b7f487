"""What many jobs of a workflow import, so that it can be done once for all of them."""

from collections import Counter
from collections.abc import Iterator, Sequence

from difftransformer.planning.plan import Plan

MANY = 10
"""Jobs, each with all its seeds, from which it is worth while."""


def common_modules(plan: Plan, artifacts: Sequence[str]) -> list[str]:
    """Return the modules that many jobs of artifacts import beside what all do, commonest first."""
    counted = Counter(name for job in _jobs(plan, artifacts) for name in plan.jobs.modules(*job))
    return [name for name, jobs in counted.most_common() if jobs >= MANY]


def _jobs(plan: Plan, artifacts: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield rules with what selects the code of their jobs."""
    evaluated = {pair for name in artifacts for pair in plan.artifacts.evaluations(name)}
    yield from (("evaluate", *pair) for pair in sorted(evaluated))
    yield from (("adapt", run) for run in plan.trainings(artifacts) if run in plan.jobs.adapted())
