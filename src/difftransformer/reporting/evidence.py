"""Evidence on claims: values by seed for each contrast, from the table of its artifact."""

from collections.abc import Mapping

from pydantic import Field

from difftransformer.config.base import Settings
from difftransformer.config.registry import Claim, ClaimContrast
from difftransformer.config.resolved_artifacts import ResolvedArtifact
from difftransformer.errors import ConfigError, nearest
from difftransformer.provenance.result import PerItemScores, Result
from difftransformer.reporting.cells import PublishedValues
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import Cell, SeedValue, TableDocument
from difftransformer.reporting.pairing import Pair, item_variance_of, pair_seeds

Values = list[float | None]


class Evidence(Settings):
    """The values by seed that test one contrast of a claim; missing values are None."""

    metric: str
    row: str
    baseline: str
    seeds: list[int]
    values: Values = Field(description="Of the row, by seed")
    baseline_values: Values = Field(description="Of the baseline, by seed")
    lower_bounds: Values = Field(
        default=[], description="Lower bounds of the row, by seed, where values are times"
    )
    baseline_lower_bounds: Values = Field(default=[], description="Lower bounds of the baseline")
    sampling_unit: str | None = Field(
        default=None, description="Sampling unit of the evaluation, such as items"
    )
    n_items: int = 0
    item_variance: float = Field(
        default=0.0, description="Variance of the mean difference due to the choice of items"
    )
    item_df: int = 0
    published: float | None = Field(
        default=None, description="Published difference, where both numbers are published"
    )
    excluded: list[int] = Field(default=[], description="Exploratory seeds, which test no claim")
    overridden: str | None = Field(default=None, description="Run changed by `overrides`, and how")
    parameters: list[int] = Field(
        default=[], description="Fewest and most parameters of its models; empty: not known"
    )
    tokens: list[int] = Field(
        default=[], description="Fewest and most training tokens of its models; empty: not known"
    )
    job_ids: list[str]


def contrast_evidence(
    contrast: ClaimContrast,
    claim: Claim,
    name: str,
    artifact: ResolvedArtifact,
    table: TableDocument,
    results: Results,
) -> Evidence:
    """Return the values by seed of a contrast, from the table that its claim is about.

    Args:
        contrast: Rows and column to compare.
        claim: The claim that the contrast belongs to.
        name: Id of the claim, for error messages.
        artifact: The artifact, with its exploratory seeds, which test no claim.
        table: The table from `make_table`, with the per-item scores of each number.
        results: The results from which the table was made.

    Raises:
        ConfigError: The table lacks the column or a row.
        DataError: Seeds or models were evaluated on different items.
    """
    by_seed = claim.over == "seeds"  # processes for timing have no seeds
    excluded = artifact.exploratory_seeds if by_seed else []
    cells = [_cell(table, run, contrast.metric, name) for run in contrast.sides.values()]
    sides = [
        [seed for seed in cell.seeds if seed.for_all_seeds or seed.seed not in excluded]
        for cell in cells
    ]
    jobs = {job for side in sides for seed in side for job in seed.job_ids}
    pairs: list[Pair] = [(seed,) for seed in sides[0]] if len(sides) == 1 else pair_seeds(*sides)
    number = None if isinstance(contrast.baseline, str) else contrast.baseline
    variance = item_variance_of(pairs, f"claim {name}")
    per_item = next((ours.per_item for ours, *_ in pairs if ours.per_item is not None), None)
    runs = {(job.run, job.seed) for job in results.all_results() if job.job_id in jobs}
    trained = [training for key, training in results.trainings.items() if key in runs]
    is_time = claim.compare == "ratio"
    return Evidence(
        metric=contrast.metric,
        row=contrast.row,
        baseline=str(contrast.baseline),
        seeds=[ours.seed for ours, *_ in pairs],
        values=[ours.value for ours, *_ in pairs],
        baseline_values=[baseline[0].value if baseline else number for _, *baseline in pairs],
        lower_bounds=[_lower_bound(ours) for ours, *_ in pairs] if is_time else [],
        baseline_lower_bounds=[_lower_bound(value) for _, *baseline in pairs for value in baseline]
        if is_time
        else [],
        sampling_unit=None if per_item is None or not variance.df else per_item.item_type,
        n_items=variance.df and _n_items(per_item),
        item_variance=variance.variance,
        item_df=variance.df,
        published=_published(contrast, artifact, table, cells),
        excluded=sorted({*excluded} & {*table.seeds}),
        overridden=_overridden(contrast, artifact.overrides),
        parameters=_range(trained, "parameters"),
        tokens=_range(trained, "tokens"),
        job_ids=sorted(jobs),
    )


def _cell(table: TableDocument, run: str, column: str, name: str) -> Cell:
    cell = table.find(run, column)
    if cell is None:
        columns = {other.column for other in table.cells() if other.row == run}
        raise ConfigError(
            f"config/registry.yaml: claims.{name}: the table of {table.artifact} has no column "
            f"'{column}' for '{run}'{nearest(column, columns)}"
        )
    return cell


def _lower_bound(seed: SeedValue) -> float | None:
    """Lower bound of a time: the probe before the event, or the end of training without it."""
    return seed.censored_at if seed.value is None else seed.lower_bound


def _published(
    contrast: ClaimContrast, artifact: ResolvedArtifact, table: TableDocument, cells: list[Cell]
) -> float | None:
    """Published difference of the same cells; None for a synthetic proxy."""
    sections = [
        section for section in table.sections if section.cell(contrast.row, contrast.metric)
    ]
    if any(section.proxy for section in sections):
        return None
    printed = PublishedValues(artifact.paper).difference(
        contrast.row, str(contrast.baseline), contrast.metric
    )
    if printed is not None:  # preferred to the difference of two numbers read off a curve
        return printed.middle
    numbers = [cell.paper_value for cell in cells]
    if isinstance(contrast.baseline, float):
        numbers.append(contrast.baseline)
    ours, theirs = numbers
    return None if ours is None or theirs is None else ours - theirs


def _overridden(contrast: ClaimContrast, overrides: Mapping[str, str]) -> str | None:
    """First run of a contrast that `overrides` changes, and how; None: no run is changed."""
    changed = (run for run in contrast.sides.values() if run in overrides)
    run = next(changed, None)
    return run and f"`overrides` changes {run} ({overrides[run]}), which the claim is not about"


def _range(trained: list[Result], metric: str) -> list[int]:
    """Smallest and largest value of a metric, such as tokens; empty without models trained here."""
    values = [
        int(number) for training in trained if (number := training.metrics.get(metric)) is not None
    ]
    return [min(values), max(values)] if values else []


def _n_items(scores: PerItemScores | None) -> int:
    sets = {} if scores is None else {term.item_set: len(term.values) for term in scores.terms}
    return sum(sets.values())
