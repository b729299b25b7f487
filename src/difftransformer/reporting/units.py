"""All the chance in a mean or a paired difference: of seeds, and of what each was asked.

Cells of tables and evidence on claims take it from here, so that both have the same intervals.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from difftransformer.errors import DataError
from difftransformer.provenance.result import Share
from difftransformer.reporting.document import SeedValue
from difftransformer.reporting.statistics import (
    NO_UNITS,
    Contrast,
    UnitChance,
    contrast,
    subtract,
    unit_chance,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Asked = tuple[str, int]
"""A set of units: its name and their number."""
Pair = tuple[SeedValue, SeedValue | None]
"""A seed in a row and in the one it is compared with; None: it is compared with no row."""


def paired(ours: Sequence[SeedValue], theirs: Sequence[SeedValue] | None) -> list[Pair]:
    """Return the seeds that both sides have; of one side alone all of them.

    A value that stands for all seeds is beside each of the other side.
    """
    if theirs is None:
        return [(one, None) for one in ours]
    ours, theirs = _for_seeds_of(ours, theirs), _for_seeds_of(theirs, ours)
    other = {seed.seed: seed for seed in theirs}
    return [(one, other[one.seed]) for one in ours if one.seed in other]


def valued(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs with a value on every side that they have."""
    return [pair for pair in pairs if all(one is None or one.value is not None for one in pair)]


def contrast_of(pairs: Sequence[Pair], about: str) -> Contrast:
    """Describe a mean, or a mean paired difference, with the chance of seeds and units.

    Args:
        pairs: Seeds with their values, at least one.
        about: Begins the errors.

    Raises:
        DataError: Seeds were asked different things, or units do not add up to a value.
    """
    return contrast(*_numbers(pairs), chance_of_units(pairs, about))


def differences_of(pairs: Sequence[Pair]) -> list[float]:
    """Differences of seeds with their values, as `contrast_of` has them."""
    return subtract(*_numbers(pairs)).differences.tolist() if pairs else []


def chance_of_units(pairs: Sequence[Pair], about: str) -> UnitChance:
    """What the choice of units adds to a mean, or to a mean paired difference.

    Nothing where a side is no mean over any.

    Args:
        pairs: Seeds; those without a value do not count.
        about: Begins the errors.

    Raises:
        DataError: Seeds were asked different things, or units do not add up to a value.
    """
    pairs = valued(pairs)
    if not pairs or any(seed and seed.units is None for pair in pairs for seed in pair):
        return NO_UNITS
    found = [
        _subtract(contributions(one), contributions(two) if two is not None else {})
        for one, two in pairs
    ]
    if any(parts.keys() != found[0].keys() for parts in found):
        raise DataError(
            f"{about}: seeds were asked different numbers of items: rerun the evaluations of the "
            "older ones"
        )
    import numpy as np

    return unit_chance([np.stack([parts[key] for parts in found]) for key in found[0]])


def contributions(seed: SeedValue) -> "dict[Asked, NDArray[np.float64]]":
    """What each unit adds to a value beyond the average one, [D] for every set of units.

    A ratio of sums is linearised: a unit counts by how far its numerator lies from what the ratio
    would have for its denominator.

    Raises:
        DataError: The units do not add up to the value.
    """
    import numpy as np

    assert seed.units is not None and seed.value is not None
    found: dict[Asked, NDArray[np.float64]] = {}
    for share in seed.units.shares:
        values = np.asarray(share.values, dtype=float)
        weights = _weights(share)
        ratio = values.sum() / weights.sum()
        added = share.coefficient * (values - ratio * weights) / weights.sum()
        key = (share.of, len(values))
        found[key] = found[key] + added if key in found else added
    if not seed.units.adds_up(seed.value):
        raise DataError(
            f"{', '.join(seed.job_ids)}: its {seed.units.unit} add up to {seed.units.total()}, its "
            f"value is {seed.value}: rerun the job"
        )
    return found


def _for_seeds_of(side: Sequence[SeedValue], other: Sequence[SeedValue]) -> Sequence[SeedValue]:
    if not (len(side) == 1 and side[0].for_all):
        return side
    return [side[0].model_copy(update={"seed": one.seed}) for one in other]


def _numbers(pairs: Sequence[Pair]) -> tuple[list[float], list[float]]:
    return [_number(one) for one, _ in pairs], [_number(two) for _, two in pairs]


def _number(seed: SeedValue | None) -> float:
    if seed is None:
        return 0.0
    assert seed.value is not None
    return seed.value


def _weights(share: Share) -> "NDArray[np.float64]":
    import numpy as np

    if share.weights is None:
        return np.ones(len(share.values))
    return np.asarray(share.weights, dtype=float)


def _subtract(
    ours: "dict[Asked, NDArray[np.float64]]", theirs: "dict[Asked, NDArray[np.float64]]"
) -> "dict[Asked, NDArray[np.float64]]":
    """Unit by unit where both were asked the same; else both sets count, as independent ones."""
    found = dict(ours)
    for key, part in theirs.items():
        found[key] = found[key] - part if key in found else -part
    return found
