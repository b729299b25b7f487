"""Cells of a table from numbers by seed: facts, means, shares, medians and paired differences."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from difftransformer.config.evaluation import Fact
from difftransformer.config.papers import PaperDifference, PaperTable
from difftransformer.config.resolved_artifacts import ResolvedGridRow, ResolvedRow
from difftransformer.provenance.result import PerItemScores, Result
from difftransformer.reporting.document import Cell, SeedValue
from difftransformer.reporting.number_format import format_number, format_signed, with_half_width
from difftransformer.reporting.pairing import (
    Pair,
    contrast_with_items,
    pair_seeds,
    seed_differences,
    with_values,
)
from difftransformer.reporting.statistics import survival, wilson_interval

UNDEFINED = "n/a"
FACT_COLUMNS = {"heads": "Heads", "head_dim": "d", "norm": "GroupNorm"}
"""Columns that say what a row is, with their headers."""
DIFFERENCE_SUFFIX = "_difference"
"""Ending of the column of paired differences of another column."""


class CellKey(NamedTuple):
    """Where a cell stands: its row (a run) and its column."""

    row: str
    column: str


class PublishedValues(NamedTuple):
    """Published values of the same cells; without a table there are none."""

    table: PaperTable | None

    def value(self, row: str, column: str) -> Fact:
        """Return the published value of a cell, None where nothing is published."""
        found = None if self.table is None else self.table.rows.get(row)
        return None if found is None else found.values.get(column)

    def number(self, row: str, column: str) -> float | None:
        """Return the published value as a number; yes and no are 1 and 0."""
        value = self.value(row, column)
        return float(value) if isinstance(value, int | float) else None

    def difference(self, row: str, baseline: str | None, column: str) -> PaperDifference | None:
        """Return what is printed of a difference, whatever the values of its rows are."""
        found = None if self.table is None else self.table.rows.get(row)
        printed = None if found is None else found.differences.get(column)
        return printed if printed is not None and printed.baseline == baseline else None


def fact_text(fact: Fact) -> str:
    """Write a fact for readers."""
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    return str(fact)


def fact_cell(
    place: CellKey,
    fact: Fact,
    sources: Sequence[Result],
    paper: PublishedValues,
    write: Callable[[Any], str] = fact_text,
) -> Cell:
    """Say what a row is, as its training jobs were told; nothing is measured."""
    published = paper.value(*place)
    return Cell(
        row=place.row,
        column=place.column,
        text="–" if fact is None else write(fact),
        value=float(fact) if isinstance(fact, int | float) else None,
        n=len(sources),
        paper_value=paper.number(*place),
        paper_text=None if published is None else write(published),
        seeds=[
            SeedValue(seed=one.seed, value=None, text="", job_ids=[one.job_id]) for one in sources
        ],
    )


def seed_values(
    found: Iterable[tuple[Result, float | None]],
    decimals: int,
    nothing: str = UNDEFINED,
    terms: Mapping[str, float] | None = None,
    remark: Callable[[Result], str] | None = None,
) -> list[SeedValue]:
    """Values by seed with the job of each.

    Args:
        found: Results with their values.
        decimals: Decimals of the values.
        nothing: What stands for a value that does not exist.
        terms: Metrics of the results that the values add up, with their factors: where results
            know all of them by what was asked, the values are known by it, too.
        remark: What stands behind the value of a result.
    """
    return [
        SeedValue(
            seed=result.seed,
            value=value,
            text=(nothing if value is None else format_number(value, decimals))
            + ("" if remark is None else f" {remark(result)}".rstrip()),
            job_ids=[result.job_id],
            per_item=_units(result, terms),
            for_all_seeds=_of_model_from_elsewhere(result),
        )
        for result, value in found
    ]


def _of_model_from_elsewhere(result: Result) -> bool:
    """A training has such a model, too, where it adapts it; then each seed is another one."""
    return result.kind == "evaluation" and result.settings.get("pretrained") is not None


def _units(result: Result, terms: Mapping[str, float] | None) -> PerItemScores | None:
    if terms is None or not terms.keys() <= result.per_item.keys():
        return None
    return PerItemScores.weighted_sum(
        (factor, result.per_item[name]) for name, factor in terms.items()
    )


def mean_cell(
    place: CellKey, seeds: list[SeedValue], decimals: int, paper: PublishedValues
) -> Cell:
    """Mean over the seeds that have a value, with the interval that a verdict on it would have.

    Raises:
        DataError: Seeds were asked different things, or per_item do not add up to a value.
    """
    pairs = [(seed,) for seed in seeds]
    return _mean(place, seeds, pairs, paper.number(*place), decimals, format_number)


def paired_differences(
    rows: Sequence[ResolvedRow | ResolvedGridRow],
    columns: Sequence[str],
    cells: Sequence[Cell],
    decimals: int,
    reference: str = "",
) -> list[Cell]:
    """Return the cells of the differences, of the rows that are compared with another.

    A published difference stands beside ours where both numbers are published.

    Args:
        rows: Rows of a section.
        columns: Ids of the columns to subtract; the differences' own end in `DIFFERENCE_SUFFIX`.
        cells: Cells of these rows and columns, and maybe others.
        decimals: Decimals of a difference.
        reference: What the differences' own ids end in behind `DIFFERENCE_SUFFIX`.

    Raises:
        DataError: Seeds were asked different things, or per_item do not add up to a value.
    """
    at = {(cell.row, cell.column): cell for cell in cells}
    found = []
    for row, column in product(rows, columns):
        if row.baseline is None:
            continue
        one, two = at[row.run, column], at[row.baseline, column]
        published = None
        if one.paper_value is not None and two.paper_value is not None:
            published = one.paper_value - two.paper_value
        pairs = with_values(pair_seeds(one.seeds, two.seeds))
        seeds = [
            SeedValue(
                seed=ours.seed,
                value=difference,
                text=format_signed(difference, decimals),
                job_ids=[*ours.job_ids, *theirs.job_ids],
            )
            for (ours, theirs), difference in zip(pairs, seed_differences(pairs), strict=True)
        ]
        place = CellKey(row.run, column + DIFFERENCE_SUFFIX + reference)
        found.append(_mean(place, seeds, pairs, published, decimals, format_signed))
    return found


def proportion_cell(place: CellKey, seeds: list[SeedValue]) -> Cell:
    """Share of the seeds with value 1, with Wilson's interval."""
    values = [seed.value for seed in seeds if seed.value is not None]
    n, successes = len(values), int(math.fsum(values))
    if not n:
        return Cell(row=place.row, column=place.column, text=UNDEFINED, seeds=seeds)
    low, high = wilson_interval(successes, n) if n > 1 else (None, None)
    text = f"{successes}/{n}"
    if low is not None and high is not None:
        text += f" ({format_number(low, 2)} to {format_number(high, 2)})"
    return Cell(
        row=place.row,
        column=place.column,
        text=text,
        value=successes / n,
        ci_low=low,
        ci_high=high,
        n=n,
        seeds=seeds,
    )


def censored_cells(
    place: CellKey, seeds: list[SeedValue], write: Callable[[float], str], happened: str
) -> list[Cell]:
    """Median, smallest and largest time of an event, and the number of seeds without it.

    The median is that of Kaplan and Meier's curve, in which a seed without the event is censored
    at its ``beyond``; it exists where the curve falls below a half.

    Args:
        place: Where the median stands; the others' columns end in _min, _max and _censored.
        seeds: Time of each seed, or beyond what it lies.
        write: Writes a time.
        happened: What an event has done, in the words "3 of 5 ...".
    """
    times = sorted(seed.value for seed in seeds if seed.value is not None)
    censored = [seed.censored_at for seed in seeds if seed.censored_at is not None]
    middle = survival(times, censored).median

    def cell(suffix: str, value: float | None, text: str = "") -> Cell:
        return Cell(
            row=place.row,
            column=place.column + suffix,
            text=text,
            value=value,
            n=len(seeds),
            seeds=seeds,
        )

    text = write(middle) if middle is not None else f"> {write(max(censored))}"
    if len(times) > 1:
        text += f" ({write(times[0])} to {write(times[-1])})"
    if len(seeds) > 1:
        text += f"; {len(times)} of {len(seeds)} {happened}"
    return [
        cell("", middle, text),
        cell("_min", times[0] if times else None),
        cell("_max", times[-1] if times else None),
        cell("_censored", float(len(censored)), str(len(censored))),
    ]


def _mean(
    place: CellKey,
    seeds: list[SeedValue],
    pairs: Sequence[Pair],
    published: float | None,
    decimals: int,
    write: Callable[[float, int], str],
) -> Cell:
    """``pairs`` are what the values of ``seeds`` were made of, with what each was asked."""
    cell = Cell(
        row=place.row,
        column=place.column,
        text=UNDEFINED,
        paper_value=published,
        paper_text=None if published is None else write(published, decimals),
        seeds=seeds,
    )
    known = with_values(pairs)
    if not known:
        return cell
    found = contrast_with_items(known, f"{place.row}, {place.column}")
    low, high = found.interval()
    return cell.model_copy(
        update={
            "text": with_half_width(write(found.effect, decimals), low, high, decimals),
            "value": found.effect,
            "std": found.deviation,
            "ci_low": low,
            "ci_high": high,
            "n": found.seeds,
        }
    )
