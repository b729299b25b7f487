"""Claims of the papers and of ours, with the tests that decide them, declared beforehand."""

from collections.abc import Callable
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from difftransformer.config.base import Name, Settings, distinct, setting

Direction = Literal["lower", "higher"]
Test = Literal["difference", "equivalence", "noninferiority", "time_to_event"]
VerdictName = Literal[
    "confirmed", "opposite at this scale", "inconclusive", "not testable here", "no data"
]
DECIDED: tuple[VerdictName, ...] = ("confirmed", "opposite at this scale")
"""Verdicts that more seeds are not needed for."""


class Requirement(Settings, str_strip_whitespace=True):
    """What must hold of a mean over seeds for a claim to be able to come out either way."""

    row: str = setting(meaning="Run that it is about")
    metric: str = setting(meaning="Column of the artifact's table")
    at_least: float | str | None = setting(
        None, meaning="Smallest mean; a name: the mean of that column of the same row"
    )
    at_most: float | str | None = setting(
        None, meaning="Largest mean; a name: the mean of that column of the same row"
    )
    reason: str = setting(
        meaning="Why the claim is not testable without it, such as a baseline at chance",
        min_length=1,
    )

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("a requirement needs at_least, at_most or both")
        return self


class Declaration(Settings):
    """When a claim was declared as it is tested now."""

    date: str = setting(
        meaning="Day of the commit; without one, the day it was written",
        pattern=r"^\d{4}-\d\d-\d\d$",
    )
    commit: str | None = setting(
        None,
        meaning="Commit of this history that brought it as it is; null: it is in none yet",
        pattern=r"^[0-9a-f]{7,40}$",
    )

    @property
    def words(self) -> str:
        """Day and commit for a reader."""
        return f"{self.date} {self.commit}" if self.commit else f"{self.date}, not in a commit yet"


class ClaimConfig(Settings, str_strip_whitespace=True):
    """A statement and the test that decides it."""

    text: str = setting(meaning="The statement, in words")
    source: str = setting(meaning="Section or table of the paper; or that it goes beyond it")
    paper: str | None = setting(
        None, meaning="Paper of papers.yaml that states it; null: none does, we do"
    )
    primary: bool = setting(
        False, meaning="Whether it is one of the few that decide on the paper as a whole"
    )
    metric: str = setting(meaning="Column of the artifact's table")
    row: str = setting(meaning="Run that the statement is about")
    against: str | float = setting(
        meaning="Run it is compared with, seed by seed; or a number, such as 1 for a ratio"
    )
    against_metric: str | None = setting(
        None, meaning="Column of `against`, a run; null: the same as of `row`"
    )
    direction: Direction = setting(
        "lower",
        meaning="Side on which `row` lies of `against` if the statement holds; under "
        "noninferiority the side that is better; without meaning for equivalence",
    )
    test: Test = setting(
        meaning="difference: the mean difference against 0; equivalence: its interval "
        "within ±margin; noninferiority: against the margin; time_to_event: log-rank test of the "
        "times to an event, not all of which were reached"
    )
    alpha: float = setting(0.05, meaning="Error rate of the verdict", gt=0, lt=0.5)
    over: Literal["seeds", "processes"] = setting(
        "seeds",
        meaning="What the values are of: seeds, or fresh processes that timed the same, of each "
        "the median of its rounds",
    )
    margin: float | None = setting(
        None, meaning="Largest difference that counts as none, in the unit of the metric", gt=0
    )
    margin_reason: str | None = setting(None, meaning="Why the margin is what it is", min_length=1)
    requires: list[Requirement] = setting(
        [], meaning="What must hold for it to be testable; the first that does not is the reason"
    )
    declared: Declaration = setting(meaning="When, and by which commit")
    seen_seeds: dict[Name, Annotated[list[int], AfterValidator(distinct)]] = setting(
        {},
        meaning="Seeds by scale whose results had been seen when it was declared: they do not "
        "judge it, beside the spent seeds of the scale",
    )
    post_hoc: str | None = setting(
        None,
        meaning="What it rests on that was changed after results were seen, and why; null: nothing",
        min_length=20,
    )

    def seen(self, scale: str) -> list[int]:
        """Return `seen_seeds` of a scale."""
        return self.seen_seeds.get(scale, [])

    @property
    def singular(self) -> str:
        """A single one of what the values are of."""
        return {"seeds": "seed", "processes": "process"}[self.over]

    @property
    def family(self) -> str:
        """The paper whose primary claims it is among; else none, it is judged beside its table's.

        Holm's correction is over a family.
        """
        return f"primary claims of {self.paper or 'ours'}" if self.primary else ""

    @model_validator(mode="after")
    def _margin_where_it_belongs(self) -> Self:
        if (self.test in ("equivalence", "noninferiority")) != (self.margin is not None):
            needs = "has no use for a margin" if self.margin is not None else "needs a margin"
            raise ValueError(f"test {self.test} {needs}: it is for equivalence and noninferiority")
        if (self.margin is None) != (self.margin_reason is None):
            raise ValueError("margin and margin_reason: give both, a margin needs its reason")
        if self.row == self.against:
            raise ValueError(f"row and against are both '{self.row}'")
        if not isinstance(self.against, str):
            if self.against_metric is not None:
                raise ValueError(f"against_metric: against is the number {self.against:g}")
            if self.test == "time_to_event":
                raise ValueError("test time_to_event: against must be a run")
        return self


class ClaimSlice(ClaimConfig):
    """A claim with the artifact that declares it."""

    artifact: str = setting(meaning="Artifact that judges it; others may show it too")
    first_seed: int = setting(0, meaning="Seed that a count of seeds of its artifact begins with")

    def beginning(self, first_seed: Callable[[str], int]) -> Self:
        """Return it with the seed that a count for its artifact begins with."""
        return self.model_copy(update={"first_seed": first_seed(self.artifact)})

    @property
    def family(self) -> str:
        """The claims that are corrected together: primary ones of a paper, or an artifact's."""
        return super().family or f"claims of {self.artifact}"


class VerdictsSlice(Settings):
    """All claims of a scale, for the job that judges those whose tables there are."""

    scale: str = setting(meaning="Scale of every result behind them")
    given: str = setting("", meaning="What a command that decides a claim has to give --config")
    claims: dict[str, ClaimSlice] = setting(meaning="Claims by id")
    not_testable: dict[str, str] = setting(
        {}, meaning="Claims that the scale cannot test whatever comes out, with the reason"
    )
