"""Means and paired differences over seeds, with the variance due to seeds and to items.

Table cells and evidence on claims both use these functions, so their intervals are the same.
"""

from collections.abc import Sequence
from functools import reduce
from math import nan
from typing import TYPE_CHECKING

from difftransformer.errors import DataError
from difftransformer.reporting.document import SeedValue
from difftransformer.reporting.statistics import (
    NO_ITEM_VARIANCE,
    Contrast,
    ItemVariance,
    item_variance,
    paired_contrast,
    subtract,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Contributions = dict[tuple[str, int], NDArray[np.float64]]
    """Contribution of each item to a value, [D], by item set: its name and number of items."""

Pair = tuple[SeedValue, ...]
"""The value of a seed, followed by the baseline's value if there is a baseline."""


def pair_seeds(ours: Sequence[SeedValue], baseline: Sequence[SeedValue]) -> list[Pair]:
    """Return the values of two models paired by seed.

    A value that is valid for all seeds is paired with each seed.
    """
    return [
        (
            first.model_copy(update={"seed": (first if second.for_all_seeds else second).seed}),
            second,
        )
        for first in ours
        for second in baseline
        if first.seed == second.seed or first.for_all_seeds != second.for_all_seeds
    ]


def with_values(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs in which neither value is missing."""
    return [pair for pair in pairs if all(side.value is not None for side in pair)]


def contrast_with_items(pairs: Sequence[Pair], location: str) -> Contrast:
    """Return the mean, or mean paired difference, with its variance over seeds and items.

    Args:
        pairs: Values of at least one seed, of one model or paired with a baseline.
        location: Start of error messages.

    Raises:
        DataError: Seeds were evaluated on different items, or per-item scores do not give a value.
    """
    return paired_contrast(*_numbers(pairs), item_variance_of(pairs, location))


def seed_differences(pairs: Sequence[Pair]) -> list[float]:
    """Return the difference of each pair of values, as used by `contrast_with_items`."""
    return subtract(*_numbers(pairs)).differences.tolist() if pairs else []


def item_variance_of(pairs: Sequence[Pair], location: str) -> ItemVariance:
    """Return the variance of a mean (or mean paired difference) due to the choice of items.

    It is zero if a value has no per-item scores. Arguments and errors: see `contrast_with_items`.
    """
    pairs = with_values(pairs)
    if not pairs or any(side.per_item is None for pair in pairs for side in pair):
        return NO_ITEM_VARIANCE
    by_seed = [reduce(_subtract, map(item_contributions, pair)) for pair in pairs]
    if any(contributions.keys() != by_seed[0].keys() for contributions in by_seed):
        raise DataError(
            f"{location}: seeds were evaluated on different numbers of items; rerun the older "
            "evaluations"
        )
    import numpy as np

    return item_variance([np.stack([seed[key] for seed in by_seed]) for key in by_seed[0]])


def item_contributions(seed: SeedValue) -> "Contributions":
    """Return the deviation that each item contributes to a seed's value.

    A ratio of sums is linearized: an item contributes the distance of its numerator from the ratio
    times its denominator.

    Raises:
        DataError: The per-item scores do not give the value.
    """
    import numpy as np

    assert seed.per_item is not None and seed.value is not None
    contributions: Contributions = {}
    for term in seed.per_item.terms:
        values = np.asarray(term.values, dtype=float)
        weights = np.ones(len(values)) if term.weights is None else np.asarray(term.weights)
        ratio = values.sum() / weights.sum()
        added = term.coefficient * (values - ratio * weights) / weights.sum()
        key = (term.item_set, len(values))
        contributions[key] = contributions[key] + added if key in contributions else added
    if not seed.per_item.sums_to(seed.value):
        raise DataError(
            f"{', '.join(seed.job_ids)}: its {seed.per_item.item_type} add up to "
            f"{seed.per_item.total()}, but its value is {seed.value}; rerun the job"
        )
    return contributions


def _numbers(pairs: Sequence[Pair]) -> tuple[list[float], list[float]]:
    """Return the values of both sides by seed; the baseline's are 0 if there is none."""
    numbers = [[nan if side.value is None else side.value for side in pair] for pair in pairs]
    return [ours for ours, *_ in numbers], [sum(baseline, 0.0) for _, *baseline in numbers]


def _subtract(ours: "Contributions", baseline: "Contributions") -> "Contributions":
    """Subtract item by item for shared item sets; other sets stay, as independent ones."""
    difference = dict(ours)
    for key, part in baseline.items():
        difference[key] = difference[key] - part if key in difference else -part
    return difference
