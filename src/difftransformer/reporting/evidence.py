"""What the table of a claim's artifact has on its contrasts: numbers by seed, before any test."""

from collections.abc import Collection, Mapping

from pydantic import Field

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.config.base import Settings
from difftransformer.config.registry import Claim, ClaimContrast
from difftransformer.config.validation import nearest
from difftransformer.errors import ConfigError
from difftransformer.provenance.result import Units
from difftransformer.reporting.cells import Paper
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import Cell, SeedValue, TableDocument
from difftransformer.reporting.units import chance_of_units, paired

Values = list[float | None]


class Evidence(Settings):
    """Numbers of a contrast by seed; absent ones are None."""

    metric: str
    row: str
    baseline: str
    seeds: list[int]
    values: Values = Field(description="Of the row, by seed")
    baseline_values: Values = Field(description="Of the baseline, by seed")
    after: Values = Field(
        default=[], description="Of times: what each value of the row is known to exceed"
    )
    baseline_after: Values = Field(default=[], description="The same of the baseline")
    unit: str | None = Field(default=None, description="What every seed was asked, such as items")
    units: int = 0
    unit_variance: float = Field(
        default=0.0, description="Variance of the mean difference that the choice of units adds"
    )
    unit_freedom: int = 0
    published: float | None = Field(
        default=None, description="Published difference, where both numbers are published"
    )
    excluded: list[int] = Field(default=[], description="Exploratory seeds, which test nothing")
    overridden: str | None = Field(default=None, description="What `set` changes of its runs")
    parameters: list[int] = Field(
        default=[], description="Fewest and most parameters of its models; empty: not known"
    )
    tokens: list[int] = Field(
        default=[], description="Fewest and most training tokens of its models; empty: not known"
    )
    job_ids: list[str]


def evidence(
    contrast: ClaimContrast,
    claim: Claim,
    name: str,
    artifact: ArtifactSlice,
    table: TableDocument,
    results: Results,
) -> Evidence:
    """Gather the numbers of a contrast from the table of its artifact.

    Args:
        contrast: The contrast.
        claim: Its claim.
        name: The claim's id, for errors.
        artifact: The artifact, with its exploratory seeds, which test nothing.
        table: As `make_table` made it, with the items behind each number.
        results: The results behind it.

    Raises:
        ConfigError: The table lacks the column or a row.
        DataError: Seeds or models were evaluated on different items.
    """
    by_seed, exploratory = claim.over == "seeds", artifact.exploratory_seeds

    def cell(run: str) -> Cell:
        found = _cell(table, run, contrast.metric, name)
        if not by_seed:  # processes that time have no seeds
            return found
        left = [one for one in found.seeds if one.for_all or one.seed not in exploratory]
        return found.model_copy(update={"seeds": left})

    ours = cell(contrast.row)
    theirs = cell(contrast.baseline) if isinstance(contrast.baseline, str) else None
    pairs = paired(ours.seeds, None if theirs is None else theirs.seeds)
    chance = chance_of_units(pairs, f"claim {name}")
    number = None if isinstance(contrast.baseline, str) else contrast.baseline
    some = next((one.units for one, _ in pairs if one.units is not None), None)
    jobs = sorted({*ours.job_ids(), *(theirs.job_ids() if theirs is not None else [])})
    timed = claim.compare == "ratio"
    return Evidence(
        metric=contrast.metric,
        row=contrast.row,
        baseline=str(contrast.baseline),
        seeds=[one.seed for one, _ in pairs],
        values=[one.value for one, _ in pairs],
        baseline_values=[number if two is None else two.value for _, two in pairs],
        after=[_after(one) for one, _ in pairs] if timed else [],
        baseline_after=[_after(two) for _, two in pairs if two is not None] if timed else [],
        unit=None if some is None or not chance.freedom else some.unit,
        units=chance.freedom and _number(some),
        unit_variance=chance.variance,
        unit_freedom=chance.freedom,
        published=_published(contrast, artifact, table, ours, theirs),
        excluded=sorted({*exploratory} & {*table.seeds}) if by_seed else [],
        overridden=_overridden(contrast, artifact.overrides),
        parameters=_range(results.trained("parameters"), jobs),
        tokens=_range(results.trained("tokens"), jobs),
        job_ids=jobs,
    )


def _cell(table: TableDocument, run: str, column: str, name: str) -> Cell:
    found = table.find(run, column)
    if found is None:
        columns = {cell.column for cell in table.cells() if cell.row == run}
        raise ConfigError(
            f"config/registry.yaml: claims.{name}: the table of {table.artifact} has no column "
            f"'{column}' for '{run}'{nearest(column, columns)}"
        )
    return found


def _after(seed: SeedValue) -> float | None:
    """What a time is known to exceed: the probe before it, or the end where it was not reached."""
    return seed.beyond if seed.value is None else seed.after


def _published(
    contrast: ClaimContrast,
    artifact: ArtifactSlice,
    table: TableDocument,
    ours: Cell,
    theirs: Cell | None,
) -> float | None:
    """Published difference of the same cells; None where the table is about a synthetic proxy."""
    where = [part for part in table.sections if part.cell(contrast.row, contrast.metric)]
    if any(part.stand_in for part in where):
        return None
    printed = Paper(artifact.paper).difference(
        contrast.row, str(contrast.baseline), contrast.metric
    )
    if printed is not None:  # rather than that of two numbers that are read off a curve
        return printed.middle
    other = contrast.baseline if theirs is None else theirs.paper_value
    if ours.paper_value is None or not isinstance(other, float):
        return None
    return ours.paper_value - other


def _overridden(contrast: ClaimContrast, overrides: Mapping[str, str]) -> str | None:
    """The first run of a contrast that `set` changes; None: there is none."""
    changed = (run for run in contrast.sides.values() if run in overrides)
    found = next(changed, None)
    return found and f"`set` changes {found} ({overrides[found]}), which the claim is not about"


def _range(known: Mapping[str, int], jobs: Collection[str]) -> list[int]:
    found = [known[job] for job in jobs if job in known]
    return [min(found), max(found)] if found else []


def _number(units: Units | None) -> int:
    sets = {} if units is None else {share.of: len(share.values) for share in units.shares}
    return sum(sets.values())
