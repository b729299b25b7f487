"""All the chance in a mean or a paired difference: of seeds, and of what each was asked.

Cells of tables and evidence on claims take it from here, so that both have the same intervals.
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
    """What each unit adds to a value, [D] for every set of units: its name and their number."""

Pair = tuple[SeedValue, ...]
"""The value of a seed, with that of the baseline behind it where there is one."""


def pair_seeds(ours: Sequence[SeedValue], theirs: Sequence[SeedValue]) -> list[Pair]:
    """Return the seeds that both sides have.

    A value that stands for all seeds is beside each of the other side.
    """
    return [
        (one.model_copy(update={"seed": one.seed if two.for_all_seeds else two.seed}), two)
        for one in ours
        for two in theirs
        if one.seed == two.seed or one.for_all_seeds != two.for_all_seeds
    ]


def with_values(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the seeds with a value on every side that they have."""
    return [both for both in pairs if all(one.value is not None for one in both)]


def contrast_with_items(pairs: Sequence[Pair], about: str) -> Contrast:
    """Describe a mean, or a mean paired difference, with the chance of seeds and units.

    Args:
        pairs: Seeds with their values, at least one.
        about: Begins the errors.

    Raises:
        DataError: Seeds were asked different things, or units do not add up to a value.
    """
    return paired_contrast(*_numbers(pairs), item_variance_of(pairs, about))


def seed_differences(pairs: Sequence[Pair]) -> list[float]:
    """Differences of seeds with their values, as `contrast_with_items` has them."""
    return subtract(*_numbers(pairs)).differences.tolist() if pairs else []


def item_variance_of(pairs: Sequence[Pair], about: str) -> ItemVariance:
    """What the choice of units adds to a mean, or to a mean paired difference.

    None where a side is not a mean over items. Arguments, errors: as in `contrast_with_items`.
    """
    pairs = with_values(pairs)
    if not pairs or any(one.per_item is None for both in pairs for one in both):
        return NO_ITEM_VARIANCE
    found = [reduce(_subtract, map(item_contributions, both)) for both in pairs]
    if any(parts.keys() != found[0].keys() for parts in found):
        raise DataError(
            f"{about}: seeds were asked different numbers of items: rerun the evaluations of the "
            "older ones"
        )
    import numpy as np

    return item_variance([np.stack([parts[key] for parts in found]) for key in found[0]])


def item_contributions(seed: SeedValue) -> "Contributions":
    """What each unit adds to a value beyond the average one.

    A ratio of sums is linearized: a unit counts by how far its numerator lies from what the ratio
    would have for its denominator.

    Raises:
        DataError: The units do not add up to the value.
    """
    import numpy as np

    assert seed.per_item is not None and seed.value is not None
    found: Contributions = {}
    for term in seed.per_item.terms:
        values = np.asarray(term.values, dtype=float)
        weights = np.ones(len(values)) if term.weights is None else np.asarray(term.weights)
        ratio = values.sum() / weights.sum()
        added = term.coefficient * (values - ratio * weights) / weights.sum()
        key = (term.item_set, len(values))
        found[key] = found[key] + added if key in found else added
    if not seed.per_item.sums_to(seed.value):
        raise DataError(
            f"{', '.join(seed.job_ids)}: its {seed.per_item.item_type} add up to "
            f"{seed.per_item.total()}, its value is {seed.value}: rerun the job"
        )
    return found


def _numbers(pairs: Sequence[Pair]) -> tuple[list[float], list[float]]:
    """Numbers of both sides by seed; 0 without a baseline."""
    numbers = [[nan if one.value is None else one.value for one in both] for both in pairs]
    return [ours for ours, *_ in numbers], [sum(theirs, 0.0) for _, *theirs in numbers]


def _subtract(ours: "Contributions", theirs: "Contributions") -> "Contributions":
    """Unit by unit where both were asked the same; else both sets count, as independent ones."""
    found = dict(ours)
    for key, part in theirs.items():
        found[key] = found[key] - part if key in found else -part
    return found
