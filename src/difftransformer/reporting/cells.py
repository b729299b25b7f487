"""Cells of a table from values by seed: facts, means, proportions, medians, paired differences."""

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
"""Columns that describe a model, with their headers."""
DIFFERENCE_SUFFIX = "_difference"
"""Suffix of the column with the paired differences of another column."""


class CellKey(NamedTuple):
    """Row (a run) and column of a cell."""

    row: str
    column: str


class PublishedValues(NamedTuple):
    """Published values by row and column; all are None without a published table."""

    table: PaperTable | None

    def value(self, row: str, column: str) -> Fact:
        """Return the published value of a cell; None: not published."""
        published = None if self.table is None else self.table.rows.get(row)
        return None if published is None else published.values.get(column)

    def number(self, row: str, column: str) -> float | None:
        """Return the published value as a number; yes and no are 1 and 0."""
        value = self.value(row, column)
        return float(value) if isinstance(value, int | float) else None

    def difference(self, row: str, baseline: str | None, column: str) -> PaperDifference | None:
        """Return the difference to a baseline that the paper itself prints, if there is one."""
        published = None if self.table is None else self.table.rows.get(row)
        printed = None if published is None else published.differences.get(column)
        return printed if printed is not None and printed.baseline == baseline else None


def fact_text(fact: Fact) -> str:
    """Return a fact about a model as text."""
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    return str(fact)


def fact_cell(
    key: CellKey,
    fact: Fact,
    sources: Sequence[Result],
    published: PublishedValues,
    write: Callable[[Any], str] = fact_text,
) -> Cell:
    """Return the cell of a fact about a model, such as its number of heads.

    Facts come from the configuration of the training jobs ``sources``; nothing is measured.
    """
    published_fact = published.value(*key)
    return Cell(
        row=key.row,
        column=key.column,
        text="–" if fact is None else write(fact),
        value=float(fact) if isinstance(fact, int | float) else None,
        n=len(sources),
        paper_value=published.number(*key),
        paper_text=None if published_fact is None else write(published_fact),
        seeds=[
            SeedValue(seed=result.seed, value=None, text="", job_ids=[result.job_id])
            for result in sources
        ],
    )


def seed_values(
    values: Iterable[tuple[Result, float | None]],
    decimals: int,
    undefined_text: str = UNDEFINED,
    terms: Mapping[str, float] | None = None,
    seed_note: Callable[[Result], str] | None = None,
) -> list[SeedValue]:
    """Return values by seed with the job of each.

    Args:
        values: Results with their values.
        decimals: Decimals of the values.
        undefined_text: Text for a missing value.
        terms: Metrics whose weighted sum the values are, with their weights. If a result has all
            of them per item, its value gets per-item scores, too.
        seed_note: Text after the value of a result.
    """
    return [
        SeedValue(
            seed=result.seed,
            value=value,
            text=(undefined_text if value is None else format_number(value, decimals))
            + ("" if seed_note is None else f" {seed_note(result)}".rstrip()),
            job_ids=[result.job_id],
            per_item=_per_item(result, terms),
            for_all_seeds=_is_pretrained(result),
        )
        for result, value in values
    ]


def _is_pretrained(result: Result) -> bool:
    """Whether a pretrained model was evaluated as it is; fine-tuning one gives a model per seed."""
    return result.kind == "evaluation" and result.settings.get("pretrained") is not None


def _per_item(result: Result, terms: Mapping[str, float] | None) -> PerItemScores | None:
    if terms is None or not terms.keys() <= result.per_item.keys():
        return None
    return PerItemScores.weighted_sum(
        (factor, result.per_item[name]) for name, factor in terms.items()
    )


def mean_cell(
    key: CellKey, seeds: list[SeedValue], decimals: int, published: PublishedValues
) -> Cell:
    """Return the mean over seeds that have a value, with the interval that its verdict would use.

    Raises:
        DataError: Seeds were evaluated on different items, or per-item scores do not give a value.
    """
    pairs = [(seed,) for seed in seeds]
    return _mean(key, seeds, pairs, published.number(*key), decimals, format_number)


def paired_differences(
    rows: Sequence[ResolvedRow | ResolvedGridRow],
    columns: Sequence[str],
    cells: Sequence[Cell],
    decimals: int,
    suffix: str = "",
) -> list[Cell]:
    """Return cells of paired differences, for each row that has a baseline.

    The published difference is added where both numbers are published.

    Args:
        rows: Rows of a section.
        columns: Ids of the columns to subtract.
        cells: Cells of these rows and columns; others are ignored.
        decimals: Decimals of a difference.
        suffix: Text after `DIFFERENCE_SUFFIX` in the ids of the columns of differences.

    Raises:
        DataError: Seeds were evaluated on different items, or per-item scores do not give a value.
    """
    by_key = {(cell.row, cell.column): cell for cell in cells}
    differences = []
    for row, column in product(rows, columns):
        if row.baseline is None:
            continue
        ours, baseline = by_key[row.run, column], by_key[row.baseline, column]
        published = None
        if ours.paper_value is not None and baseline.paper_value is not None:
            published = ours.paper_value - baseline.paper_value
        pairs = with_values(pair_seeds(ours.seeds, baseline.seeds))
        seeds = [
            SeedValue(
                seed=first.seed,
                value=difference,
                text=format_signed(difference, decimals),
                job_ids=[*first.job_ids, *second.job_ids],
            )
            for (first, second), difference in zip(pairs, seed_differences(pairs), strict=True)
        ]
        key = CellKey(row.run, column + DIFFERENCE_SUFFIX + suffix)
        differences.append(_mean(key, seeds, pairs, published, decimals, format_signed))
    return differences


def proportion_cell(key: CellKey, seeds: list[SeedValue]) -> Cell:
    """Return the proportion of seeds with value 1, with Wilson's interval."""
    values = [seed.value for seed in seeds if seed.value is not None]
    n, successes = len(values), int(math.fsum(values))
    if not n:
        return Cell(row=key.row, column=key.column, text=UNDEFINED, seeds=seeds)
    low, high = wilson_interval(successes, n) if n > 1 else (None, None)
    text = f"{successes}/{n}"
    if low is not None and high is not None:
        text += f" ({format_number(low, 2)} to {format_number(high, 2)})"
    return Cell(
        row=key.row,
        column=key.column,
        text=text,
        value=successes / n,
        ci_low=low,
        ci_high=high,
        n=n,
        seeds=seeds,
    )


def censored_cells(
    key: CellKey, seeds: list[SeedValue], write: Callable[[float], str], event: str
) -> list[Cell]:
    """Return median, smallest and largest time of an event, and the number of seeds without it.

    The median is that of the Kaplan-Meier curve, in which a seed without the event is censored at
    its ``censored_at``. It exists if the curve falls below one half.

    Args:
        key: Key of the median; the columns of the others end in _min, _max and _censored.
        seeds: Time of each seed, or the time at which it is censored.
        write: Formats a time.
        event: What happened, for the text "3 of 5 {event}".
    """
    times = sorted(seed.value for seed in seeds if seed.value is not None)
    censored = [seed.censored_at for seed in seeds if seed.censored_at is not None]
    median = survival(times, censored).median

    def cell(suffix: str, value: float | None, text: str = "") -> Cell:
        column = key.column + suffix
        return Cell(row=key.row, column=column, text=text, value=value, n=len(seeds), seeds=seeds)

    text = write(median) if median is not None else f"> {write(max(censored))}"
    if len(times) > 1:
        text += f" ({write(times[0])} to {write(times[-1])})"
    if len(seeds) > 1:
        text += f"; {len(times)} of {len(seeds)} {event}"
    return [
        cell("", median, text),
        cell("_min", times[0] if times else None),
        cell("_max", times[-1] if times else None),
        cell("_censored", float(len(censored)), str(len(censored))),
    ]


def _mean(
    key: CellKey,
    seeds: list[SeedValue],
    pairs: Sequence[Pair],
    published: float | None,
    decimals: int,
    write: Callable[[float, int], str],
) -> Cell:
    """Return the cell of a mean over ``pairs``, which give the values of ``seeds``."""
    cell = Cell(
        row=key.row,
        column=key.column,
        text=UNDEFINED,
        paper_value=published,
        paper_text=None if published is None else write(published, decimals),
        seeds=seeds,
    )
    pairs = with_values(pairs)
    if not pairs:
        return cell
    contrast = contrast_with_items(pairs, f"{key.row}, {key.column}")
    low, high = contrast.interval()
    return cell.model_copy(
        update={
            "text": with_half_width(write(contrast.effect, decimals), low, high, decimals),
            "value": contrast.effect,
            "std": contrast.deviation,
            "ci_low": low,
            "ci_high": high,
            "n": contrast.seeds,
        }
    )
