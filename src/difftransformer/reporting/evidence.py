"""Numbers by seed for the contrasts of a claim, from the table of its artifact."""

from collections.abc import Collection, Mapping

from pydantic import Field

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.config.base import Settings
from difftransformer.config.registry import Claim, ClaimContrast
from difftransformer.errors import ConfigError, nearest
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
        default=[], description="Lower bounds of the row, by seed, where values are times"
    )
    baseline_after: Values = Field(default=[], description="Lower bounds of the baseline")
    unit: str | None = Field(
        default=None, description="Sampling unit of the evaluation, such as items"
    )
    units: int = 0
    unit_variance: float = Field(
        default=0.0, description="Variance of the mean difference due to the choice of units"
    )
    unit_freedom: int = 0
    published: float | None = Field(
        default=None, description="Published difference, where both numbers are published"
    )
    excluded: list[int] = Field(default=[], description="Exploratory seeds, which test no claim")
    overridden: str | None = Field(default=None, description="Run changed by `set`, and how")
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
        artifact: The artifact, with its exploratory seeds, which test no claim.
        table: Result of `make_table`, with the items behind each number.
        results: The results behind it.

    Raises:
        ConfigError: The table lacks the column or a row.
        DataError: Seeds or models were evaluated on different items.
    """
    by_seed, exploratory = claim.over == "seeds", artifact.exploratory_seeds

    def cell(run: str) -> Cell:
        full_cell = _cell(table, run, contrast.metric, name)
        if not by_seed:  # processes for timing have no seeds
            return full_cell
        eligible = [
            value for value in full_cell.seeds if value.for_all or value.seed not in exploratory
        ]
        return full_cell.model_copy(update={"seeds": eligible})

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
    """Lower bound of a time: the probe before the event, or the end of training without it."""
    return seed.beyond if seed.value is None else seed.after


def _published(
    contrast: ClaimContrast,
    artifact: ArtifactSlice,
    table: TableDocument,
    ours: Cell,
    theirs: Cell | None,
) -> float | None:
    """Published difference of the same cells; None for a synthetic proxy."""
    sections = [
        section for section in table.sections if section.cell(contrast.row, contrast.metric)
    ]
    if any(section.stand_in for section in sections):
        return None
    printed = Paper(artifact.paper).difference(
        contrast.row, str(contrast.baseline), contrast.metric
    )
    if printed is not None:  # preferred to the difference of two numbers read off a curve
        return printed.middle
    baseline = contrast.baseline if theirs is None else theirs.paper_value
    if ours.paper_value is None or not isinstance(baseline, float):
        return None
    return ours.paper_value - baseline


def _overridden(contrast: ClaimContrast, overrides: Mapping[str, str]) -> str | None:
    """First run of a contrast that `set` changes, and how; None: no run is changed."""
    changed = (run for run in contrast.sides.values() if run in overrides)
    run = next(changed, None)
    return run and f"`set` changes {run} ({overrides[run]}), which the claim is not about"


def _range(counts: Mapping[str, int], jobs: Collection[str]) -> list[int]:
    values = [counts[job] for job in jobs if job in counts]
    return [min(values), max(values)] if values else []


def _number(units: Units | None) -> int:
    sets = {} if units is None else {share.of: len(share.values) for share in units.shares}
    return sum(sets.values())
