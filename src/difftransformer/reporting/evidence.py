"""What a table has on each claim: numbers by seed, and what its obstacles are.

A table knows its own rows alone. What the evidence is worth is decided where that of all tables is
together, see `difftransformer.reporting.verdicts`.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.config.claims import ClaimSlice, Requirement
from difftransformer.config.validation import nearest
from difftransformer.errors import ConfigError, DataError
from difftransformer.provenance.result import Share, Units
from difftransformer.provenance.sums import adds_up, total
from difftransformer.reporting.cells import Paper
from difftransformer.reporting.document import Cell, Evidence, SeedValue, TableDocument
from difftransformer.reporting.numbers import plain
from difftransformer.reporting.statistics import NO_UNITS, UnitChance, unit_chance

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Asked = tuple[str, int]
"""A set of units: its name and their number."""


def gather(artifact: ArtifactSlice, table: TableDocument) -> list[Evidence]:
    """Gather the evidence on every claim of an artifact from its table.

    Raises:
        ConfigError: a claim is about a column that the table does not have.
        DataError: Seeds or rows were asked different things.
    """
    paper = Paper(artifact.paper)
    return [
        _Judged(name, claim, table, paper, artifact.spent_seeds).evidence()
        for name, claim in artifact.claims.items()
    ]


class _Judged:
    """One claim beside the table that judges it."""

    def __init__(
        self,
        name: str,
        claim: ClaimSlice,
        table: TableDocument,
        paper: Paper,
        spent: Collection[int] = (),
    ) -> None:
        self.name, self.claim, self.table, self.paper = name, claim, table, paper
        self.spent = set(spent)

    def evidence(self) -> Evidence:
        claim = self.claim
        ours = self._unspent(claim.row, claim.metric)
        theirs, published = None, None
        printed = self.paper.difference(claim.row, str(claim.against), claim.metric)
        if printed is not None:
            published = printed.middle
        if isinstance(claim.against, str):
            theirs = self._unspent(claim.against, claim.against_metric or claim.metric)
            if ours.paper_value is not None and theirs.paper_value is not None:
                published = ours.paper_value - theirs.paper_value
        elif ours.paper_value is not None:
            published = ours.paper_value - claim.against
        if self._stands_in():
            published = None  # a difference of other questions
        pairs = _pairs(ours, theirs)
        number = None if isinstance(claim.against, str) else claim.against
        chance = chance_of_units(ours, theirs, f"claim {self.name}")
        beyond = [seed.beyond for pair in pairs for seed in pair if seed and seed.beyond]
        some = next((one.units for one, _ in pairs if one.units is not None), None)
        return Evidence(
            claim=self.name,
            seeds=[one.seed for one, _ in pairs],
            spent=[] if claim.over == "repeats" else sorted(self.spent & set(self.table.seeds)),
            ours=[one.value for one, _ in pairs],
            theirs=[number if two is None else two.value for _, two in pairs],
            beyond=min(beyond) if beyond else None,
            unit=None if some is None or not chance.freedom else some.unit,
            units=chance.freedom and _number(some),
            unit_variance=chance.variance,
            unit_freedom=chance.freedom,
            published=published,
            obstacle=self._obstacle(),
            job_ids=sorted({*ours.job_ids(), *(theirs.job_ids() if theirs is not None else [])}),
        )

    def _stands_in(self) -> bool:
        where = [
            part for part in self.table.sections if part.cell(self.claim.row, self.claim.metric)
        ]
        return any(part.stand_in for part in where)

    def _obstacle(self) -> str | None:
        """Why the claim cannot be tested by this table; None: it can."""
        said = (self._unmet(one, index) for index, one in enumerate(self.claim.requires))
        return next((words for words in said if words is not None), None)

    def _unmet(self, needed: Requirement, index: int) -> str | None:
        value = self._mean(needed.row, needed.metric, f"requires[{index}].metric")
        if value is None:
            return None  # the claim itself has no data then
        for key, sign, word in (("at_least", 1, "below"), ("at_most", -1, "above")):
            limit = getattr(needed, key)
            if isinstance(limit, str):
                limit = self._mean(needed.row, limit, f"requires[{index}].{key}")
            if limit is not None and sign * value < sign * limit:
                return f"{needed.reason} ({plain(value, 3)}, {word} {plain(limit, 3)})"
        return None

    def _mean(self, row: str, column: str, key: str) -> float | None:
        return self._cell(row, column, key).value

    def _unspent(self, row: str, column: str) -> Cell:
        """The cell without the seeds that judge nothing; repeats have no seeds."""
        cell = self._cell(row, column, "metric")
        if self.claim.over == "repeats":
            return cell
        left = [seed for seed in cell.seeds if seed.seed not in self.spent]
        return cell.model_copy(update={"seeds": left})

    def _cell(self, row: str, column: str, key: str) -> Cell:
        cell = self.table.find(row, column)
        if cell is None:
            columns = {cell.column for cell in self.table.cells() if cell.row == row}
            raise ConfigError(
                f"config/artifacts/{self.table.artifact}.yaml: claims.{self.name}.{key}: its table "
                f"has no column '{column}' for '{row}'{nearest(column, columns)}"
            )
        return cell


def chance_of_units(ours: Cell, theirs: Cell | None, about: str) -> UnitChance:
    """What the choice of units adds to a mean, or to a mean paired difference.

    Nothing where a side is no mean over any. ``about`` begins the errors.

    Raises:
        DataError: Seeds were asked different things, or units do not add up to a value.
    """
    pairs = [(one, two) for one, two in _pairs(ours, theirs) if _counts(one, two)]
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
    if not adds_up(seed.units, seed.value):
        raise DataError(
            f"{', '.join(seed.job_ids)}: its {seed.units.unit} add up to {total(seed.units)}, its "
            f"value is {seed.value}: rerun the job"
        )
    return found


def _pairs(ours: Cell, theirs: Cell | None) -> list[tuple[SeedValue, SeedValue | None]]:
    """Seeds that both sides have; of one side alone all of them."""
    other = {} if theirs is None else {seed.seed: seed for seed in theirs.seeds}
    pairs = [(one, other.get(one.seed)) for one in ours.seeds]
    return [pair for pair in pairs if theirs is None or pair[1] is not None]


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


def _counts(one: SeedValue, two: SeedValue | None) -> bool:
    return one.value is not None and (two is None or two.value is not None)


def _number(units: Units | None) -> int:
    sets = {} if units is None else {share.of: len(share.values) for share in units.shares}
    return sum(sets.values())
