"""Tables and figures that exist already, and their seeds."""

from collections.abc import Iterable
from pathlib import Path

from difftransformer.errors import UserError
from difftransformer.planning.plan import Plan
from difftransformer.reporting.verdict_job import read_earlier_tables


def built(plan: Plan) -> list[str]:
    """Return the names of the artifacts of which a table or figure file exists."""
    return [
        name
        for name in plan.artifacts.available
        if any(Path(file).is_file() for file in plan.files([name]))
    ]


def built_users(plan: Plan, artifact: str) -> list[str]:
    """Return the names of ``artifact`` and of existing artifacts that show its owned runs.

    The owned runs of an artifact are those that `Plan.owned_runs` returns.
    """
    owned, existing = set(plan.owned_runs(artifact)), set(built(plan))
    return [
        name
        for name in plan.artifacts.available
        if name == artifact or (name in existing and owned & set(plan.artifacts.runs(name)))
    ]


def seeds_of(plan: Plan, artifacts: Iterable[str]) -> dict[str, list[int]]:
    """Return the seeds in the existing table files of ``artifacts``, by artifact name."""
    paths = (Path(f"{plan.jobs.layout.table(name)}.json") for name in artifacts)
    tables = read_earlier_tables(path for path in paths if path.is_file())
    return {table.artifact: table.seeds for table in tables}


def built_seeds(plan: Plan, artifact: str) -> list[int] | None:
    """Return the seeds of the existing tables that show runs owned by an artifact.

    Returns None if each table has the seeds that this call requests for it.

    Raises:
        UserError: The tables differ from the requested seeds and among each other.
    """
    seeds_by_table = seeds_of(plan, built_users(plan, artifact))
    if all(seeds == plan.artifacts.seeds(name) for name, seeds in seeds_by_table.items()):
        return None
    first, *others = seeds_by_table.values()
    if any(seeds != first for seeds in others):
        listing = ", ".join(f"{name} {seeds}" for name, seeds in seeds_by_table.items())
        raise UserError(f"existing tables have different seeds: {listing}; give --seeds")
    return first
