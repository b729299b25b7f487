"""What a table has on each claim: numbers by seed, and what its obstacles are.

A table knows its own rows alone. What the evidence is worth is decided where that of all tables is
together, see `difftransformer.reporting.verdicts`.
"""

from collections.abc import Collection, Mapping
from statistics import fmean

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.config.claims import ClaimSlice, Requirement
from difftransformer.config.validation import nearest
from difftransformer.errors import ConfigError
from difftransformer.provenance.result import Units
from difftransformer.reporting.cells import Paper
from difftransformer.reporting.document import Cell, Evidence, TableDocument
from difftransformer.reporting.numbers import plain
from difftransformer.reporting.units import chance_of_units, paired


def gather(
    artifact: ArtifactSlice, table: TableDocument, parameters: Mapping[str, int] | None = None
) -> list[Evidence]:
    """Gather the evidence on every claim of an artifact from its table.

    Args:
        artifact: With its claims.
        table: As `make_table` made it.
        parameters: Job id -> parameters of its model, of the jobs where that is known.

    Raises:
        ConfigError: a claim is about a column that the table does not have.
        DataError: Seeds or rows were asked different things.
    """
    paper = Paper(artifact.paper)
    found = [
        _Judged(
            name,
            claim,
            table,
            paper,
            {*artifact.spent_seeds, *claim.seen(artifact.scale)},
            artifact.overrides,
        ).evidence()
        for name, claim in artifact.claims.items()
    ]
    return [one.model_copy(update={"parameters": _sizes(one, parameters or {})}) for one in found]


def _sizes(evidence: Evidence, parameters: Mapping[str, int]) -> list[int]:
    """Fewest and most parameters of the models behind a claim."""
    found = [parameters[job] for job in evidence.job_ids if job in parameters]
    return [min(found), max(found)] if found else []


class _Judged:
    """One claim beside the table that judges it."""

    def __init__(
        self,
        name: str,
        claim: ClaimSlice,
        table: TableDocument,
        paper: Paper,
        spent: Collection[int] = (),
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.claim, self.table, self.paper = name, claim, table, paper
        self.spent, self.overrides = set(spent), overrides or {}

    def evidence(self) -> Evidence:
        claim = self.claim
        ours = self._unspent(claim.row, claim.metric)
        theirs, published = None, None
        if isinstance(claim.against, str):
            theirs = self._unspent(claim.against, claim.against_metric or claim.metric)
            if ours.paper_value is not None and theirs.paper_value is not None:
                published = ours.paper_value - theirs.paper_value
        elif ours.paper_value is not None:
            published = ours.paper_value - claim.against
        printed = self.paper.difference(claim.row, str(claim.against), claim.metric)
        if printed is not None:  # rather than that of two numbers that we have read off a curve
            published = printed.middle
        if self._stands_in():
            published = None  # a difference of other questions
        pairs = paired(ours.seeds, None if theirs is None else theirs.seeds)
        number = None if isinstance(claim.against, str) else claim.against
        chance = chance_of_units(pairs, f"claim {self.name}")
        beyond = [seed.beyond for pair in pairs for seed in pair if seed and seed.beyond]
        some = next((one.units for one, _ in pairs if one.units is not None), None)
        return Evidence(
            claim=self.name,
            seeds=[one.seed for one, _ in pairs],
            spent=[] if claim.over == "processes" else sorted(self.spent & set(self.table.seeds)),
            ours=[one.value for one, _ in pairs],
            theirs=[number if two is None else two.value for _, two in pairs],
            beyond=min(beyond) if beyond else None,
            unit=None if some is None or not chance.freedom else some.unit,
            units=chance.freedom and _number(some),
            unit_variance=chance.variance,
            unit_freedom=chance.freedom,
            published=published,
            obstacle=self._override() or self._unmet_requirement(),
            overridden=self._override(),
            job_ids=sorted({*ours.job_ids(), *(theirs.job_ids() if theirs is not None else [])}),
        )

    def _stands_in(self) -> bool:
        where = [
            part for part in self.table.sections if part.cell(self.claim.row, self.claim.metric)
        ]
        return any(part.stand_in for part in where)

    def _override(self) -> str | None:
        """The first run that the claim is about and `set` changes; None: there is none."""
        claim = self.claim
        for run in (claim.row, claim.against, *(one.row for one in claim.requires)):
            if isinstance(run, str) and run in self.overrides:
                return (
                    f"`set` changes {run} ({self.overrides[run]}), which is not what the claim is "
                    "about"
                )
        return None

    def _unmet_requirement(self) -> str | None:
        """The first requirement that does not hold; None: all do."""
        said = (self._unmet(one, index) for index, one in enumerate(self.claim.requires))
        return next((words for words in said if words is not None), None)

    def _unmet(self, needed: Requirement, index: int) -> str | None:
        value = self._mean(needed.row, needed.metric, f"requires[{index}].metric")
        for key, sign, word in (("at_least", 1, "below"), ("at_most", -1, "above")):
            limit = getattr(needed, key)
            if limit is None:
                continue
            if isinstance(limit, str):
                limit = self._mean(needed.row, limit, f"requires[{index}].{key}")
            if value is None or limit is None:
                return f"{needed.metric} of {needed.row}, which it is to be known by, has no value"
            if sign * value < sign * limit:
                return f"{needed.reason} ({plain(value, 3)}, {word} {plain(limit, 3)})"
        return None

    def _mean(self, row: str, column: str, key: str) -> float | None:
        """What the table says, or where it has spent seeds the mean of the others."""
        cell = self._unspent(row, column, key)
        if len(cell.seeds) == len(self._cell(row, column, key).seeds):
            return cell.value
        values = [seed.value for seed in cell.seeds if seed.value is not None]
        return fmean(values) if values else None

    def _unspent(self, row: str, column: str, key: str = "metric") -> Cell:
        """The cell without the seeds that judge nothing.

        Processes that time have no seeds, and models from elsewhere none of ours.
        """
        cell = self._cell(row, column, key)
        if self.claim.over == "processes":
            return cell
        left = [seed for seed in cell.seeds if seed.for_all or seed.seed not in self.spent]
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


def _number(units: Units | None) -> int:
    sets = {} if units is None else {share.of: len(share.values) for share in units.shares}
    return sum(sets.values())
