"""Verdicts on declared claims, from the evidence of all tables together; see docs/verdicts.md.

A verdict is what the data at its scale can bear: confirmed, opposite at this scale,
inconclusive, not testable here, or no data.
"""

from collections.abc import Mapping

from pydantic import Field

from difftransformer.config.base import Settings
from difftransformer.config.claims import ClaimSlice, VerdictName, VerdictsSlice
from difftransformer.reporting.claim_tests import (
    contrast_of,
    direction,
    pairs_of,
    run_test,
    seeds_needed,
)
from difftransformer.reporting.document import Evidence
from difftransformer.reporting.numbers import (
    counted,
    decimals_for,
    plain,
    probability,
    scale_and_size,
    signed,
)
from difftransformer.reporting.statistics import FEWEST_PAIRS, MOST_SEEDS, POWER, Corrected, holm


class Verdict(Settings):
    """What the results say about a claim, at their scale. Numbers that do not exist are None."""

    claim: str
    text: str
    source: str
    paper: str | None = Field(description="Short name of the paper; None: the claim is ours")
    primary: bool
    family: str = Field(description="Claims that Holm's correction is over")
    group: str = Field(description="Runs that it compares; claims of a group share their chance")
    artifact: str
    verdict: VerdictName
    scale: str
    parameters: list[int] = Field(
        description="Fewest and most parameters of its models; empty: not known"
    )
    reason: str
    direction: str = Field(description="as claimed, opposite, or none without a difference")
    effect: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    published_effect: float | None = None
    seeds: int
    seeds_needed: int | None = Field(
        default=None,
        description="Seeds, of all, that decide it with 80% power; of one that is not tested yet, "
        "the fewest that are; None: decided, or no number does",
    )
    p: float | None = None
    p_adjusted: float | None = None
    declared: str
    post_hoc: str | None
    run_ids: list[str]
    test: str
    claimed: str = Field(description="Side claimed, of a row against another or a number")
    margin: float | None
    alpha: float
    ours: list[float | None] = Field(description="By seed; None: no value")
    theirs: list[float | None]
    beyond: float | None = Field(description="What an absent time exceeds")
    unit: str | None
    units: int
    unit_variance: float
    unit_freedom: int
    minutes: float | None = Field(
        default=None, description="What the missing seeds take, by the times of those there are"
    )
    command: str = Field(default="", description="Builds what is missing")

    @property
    def where(self) -> str:
        """Scale, and size of the models, that it holds for."""
        return scale_and_size(self.scale, self.parameters)


def judge(asked: VerdictsSlice, evidence: Mapping[str, Evidence]) -> list[Verdict]:
    """Judge every claim of which there is evidence, in the order of their declaration.

    Claims of a family without evidence count as undecided ones, so that what is decided is no
    surer of itself where less was built.
    """
    found = {name: _Case(asked, name, evidence[name]) for name in asked.claims if name in evidence}
    families: dict[str, list[str]] = {}
    for name, claim in asked.claims.items():
        families.setdefault(claim.family, []).append(name)
    corrected: dict[str, Corrected] = {}
    for names in families.values():
        p_values = [found[name].p_value if name in found else 1.0 for name in names]
        corrected |= dict(zip(names, holm(p_values), strict=True))
    return [case.verdict(*corrected[name]) for name, case in found.items()]


class _Case:
    """One claim with its evidence."""

    def __init__(self, asked: VerdictsSlice, name: str, evidence: Evidence) -> None:
        self.name, self.evidence, self.scale = name, evidence, asked.scale
        self.claim: ClaimSlice = asked.claims[name]
        self.untestable = asked.not_testable.get(name)
        obstacles = (evidence.overridden, self.untestable or evidence.obstacle)
        self.obstacle = "; ".join(dict.fromkeys(filter(None, obstacles))) or None
        self.pairs = pairs_of(self.claim, evidence)
        self.tested = None
        if len(self.pairs) >= FEWEST_PAIRS:
            self.tested = run_test(self.claim, self.pairs, evidence)
        if self.obstacle is None and len(self.pairs) > 1 and self._constant():
            self.obstacle = f"the metric is constant, {plain(self.pairs[0][0], 3)} in both rows"

    @property
    def p_value(self) -> float:
        """As its family counts it: what is not tested decides nothing."""
        if self.tested is None or self.obstacle is not None or self._selected():
            return 1.0
        return self.tested.p_value

    def verdict(self, adjusted: float, share: int) -> Verdict:
        claim, evidence, tested = self.claim, self.evidence, self.tested
        effect = contrast_of(self.pairs, evidence).effect if self.pairs else None
        against = f" − {claim.against}" if isinstance(claim.against, str) else ""
        counted = tested if self.obstacle is None else None
        name = self._name(adjusted)
        needed = self._seeds_needed(share) if name == "inconclusive" or self._spent() else None
        return Verdict(
            claim=self.name,
            family=claim.family,
            group=claim.row + against,
            verdict=name,
            scale=self.scale,
            reason=self._reason(name, adjusted, needed),
            direction=direction(claim, effect),
            effect=effect,
            ci_low=tested.low if tested is not None else None,
            ci_high=tested.high if tested is not None else None,
            published_effect=evidence.published,
            seeds=len(self.pairs),
            seeds_needed=needed,
            p=counted.p_value if counted is not None else None,
            p_adjusted=adjusted if counted is not None else None,
            declared=claim.declared.words,
            run_ids=evidence.job_ids,
            claimed=claim.direction,
            **claim.model_dump(
                include={"text", "source", "paper", "primary", "artifact", "post_hoc", "test",
                         "margin", "alpha"}
            ),
            **evidence.model_dump(
                include={"ours", "theirs", "beyond", "unit", "units", "unit_variance",
                         "unit_freedom", "parameters"}
            ),
        )  # fmt: skip

    def _name(self, adjusted: float) -> VerdictName:
        if not self.pairs:
            return "no data"
        if self.obstacle is not None:
            return "not testable here"
        if self.tested is None or self._selected() or adjusted >= self.claim.alpha:
            return "inconclusive"
        return "confirmed" if self.tested.holds else "opposite at this scale"

    def _reason(self, name: VerdictName, adjusted: float, needed: int | None) -> str:
        claim, seeds = self.claim, len(self.pairs)
        if self._spent():
            return (
                f"seeds {', '.join(map(str, self.evidence.spent))} are spent: they had been seen "
                "when the protocol or this claim was chosen, and do not judge it; "
                + _would_decide(needed, 0, tested=False)
            )
        if name == "no data":
            return f"no {claim.singular} has a value on both sides"
        words = [] if self.obstacle is None else [self.obstacle]
        if self.tested is not None:
            words.append(self.tested.words)
        else:
            mean = contrast_of(self.pairs, self.evidence).effect
            number = f"{seeds} {claim.over if seeds > 1 else claim.singular}"
            words.append(f"difference {signed(mean, decimals_for(mean, None, None))}, of {number}")
        if self.obstacle is None:
            if self._selected():
                asked = len(self.evidence.seeds)
                words.append(
                    f"{asked - seeds} of {asked} {claim.over} without a value, which may be the "
                    "very thing claimed"
                )
            elif self.tested is not None:
                words.append(f"{probability(self.tested.p_value)}, in its family {adjusted:.2g}")
            if name == "inconclusive" and claim.over == "seeds":
                words.append(_would_decide(needed, seeds, tested=self.tested is not None))
        return "; ".join(words)

    def _spent(self) -> bool:
        """Whether it lacks nothing but seeds that may judge it."""
        return not self.pairs and bool(self.evidence.spent) and not self.untestable

    def _constant(self) -> bool:
        """Whether every seed of both rows gave the same number, and what was asked did not vary."""
        values = {value for pair in self.pairs for value in pair}
        alike = isinstance(self.claim.against, str) and len(values) == 1
        return alike and not self.evidence.unit_variance

    def _selected(self) -> bool:
        """Whether seeds are missing because they have no value."""
        return len(self.pairs) < len(self.evidence.seeds)

    def _seeds_needed(self, share: int) -> int | None:
        """Seeds, of all, that would decide it; None where no number of them is known to."""
        if self.claim.over != "seeds" or self._selected():
            return None
        if self.tested is None:
            return FEWEST_PAIRS
        return seeds_needed(self.claim, self.pairs, self.evidence, self.claim.alpha / share)


def _would_decide(needed: int | None, have: int, *, tested: bool) -> str:
    if needed is None:
        return f"no number of seeds up to {MOST_SEEDS} is sure to decide it"
    more = max(needed - have, 1)
    seeds = counted(more, "more seed")
    if not tested:
        return f"with {seeds} it is tested, and how many decide it is known"
    return f"{seeds} would, with {POWER:.0%} power"
