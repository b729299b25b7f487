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
    """Key of a table cell: its row (a run) and its column."""

    row: str
    column: str


class PublishedValues(NamedTuple):
    """The numbers that a paper publishes, by row and column of a table.

    All are None if the table has no published counterpart.
    """

    table: PaperTable | None

    def value(self, row: str, column: str) -> Fact:
        """Return the published value of a cell, or None if there is none."""
        published = None if self.table is None else self.table.rows.get(row)
        return None if published is None else published.values.get(column)

    def number(self, row: str, column: str) -> float | None:
        """Return the published value of a cell as a number or None; yes and no are 1 and 0."""
        value = self.value(row, column)
        return float(value) if isinstance(value, int | float) else None

    def difference(self, row: str, baseline: str | None, column: str) -> PaperDifference | None:
        """Return a row's difference to its baseline as the paper itself prints it, or None."""
        published = None if self.table is None else self.table.rows.get(row)
        printed = None if published is None else published.differences.get(column)
        return printed if printed is not None and printed.baseline == baseline else None


def fact_text(fact: Fact) -> str:
    """Return a fact about a model, such as its number of heads, as text."""
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
    """Return a table cell with a fact about a model, such as its number of heads.

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
    """Return one `SeedValue` per result, which names the job that computed the value.

    Args:
        values: Pairs of result and value.
        decimals: Decimals of the values.
        undefined_text: Text shown for a missing value.
        terms: Metrics whose weighted sum the values are, with their weights. If a result has all
            of them per item, its value gets per-item scores, too.
        seed_note: Function that returns the text shown after the value of a result.
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
    """Return a cell with the mean over the seeds that have a value, and its confidence interval.

    The interval is the one that a verdict on this mean would use.

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
    """Return a cell of the paired difference to the baseline, per column and row with a baseline.

    The published difference is added where both numbers are published.

    Args:
        rows: Rows of a table section.
        columns: Ids of the columns whose values are subtracted.
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
    """Return a cell with the proportion of seeds with value 1, and Wilson's interval."""
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
    """Return cells of an event's median, smallest and largest time, and of the seeds without it.

    The median is that of the Kaplan-Meier curve, in which a seed without the event is censored at
    its ``censored_at``. It exists if the curve falls below one half.

    Args:
        key: Key of the median's cell; the columns of the other cells end in _min, _max and
            _censored.
        seeds: Time of each seed, or the time at which it is censored.
        write: Function that formats a time.
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
    """Return a cell with the mean of ``pairs``, in which ``seeds`` are listed as its values."""
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
