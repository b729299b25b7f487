"""Verdicts on registered claims, from the evidence of all their tables; see docs/verdicts.md."""

import math
from collections.abc import Mapping, Sequence

from pydantic import Field

from difftransformer.config.artifact_slices import TestedClaims
from difftransformer.config.base import Settings
from difftransformer.config.registry import DECIDED, Claim, VerdictName
from difftransformer.reporting.claim_tests import (
    Tested,
    combine,
    contrast_of,
    run_test,
    seeds_needed,
)
from difftransformer.reporting.evidence import Evidence
from difftransformer.reporting.numbers import (
    decimals_for,
    plain,
    probability,
    scale_and_size,
    signed,
)
from difftransformer.reporting.statistics import FEWEST_PAIRS, POWER, Corrected, holm


class TestedContrast(Settings):
    """What the seeds say about a contrast. Numbers that do not exist are None."""

    evidence: Evidence
    name: str = Field(description="What tells it from the claim's other contrast, in words")
    seeds: int = Field(description="Seeds that have a value on both sides")
    effect: float | None = Field(default=None, description="Mean difference, or mean ratio")
    ci_low: float | None = None
    ci_high: float | None = None
    p: float | None = None
    speaks_for: VerdictName | None = Field(default=None, description="What p is for")

    def words(self, claim: Claim) -> str:
        """The effect with its unit and interval."""
        if self.effect is None:
            return "no value"
        ends = (self.ci_low, self.ci_high)
        if claim.compare == "ratio":
            text, digits, open_ends = f"× {self.effect:.2f}", 2, ("0", "∞")
        else:
            digits, open_ends = decimals_for(self.effect, *ends), ("", "")
            text = signed(self.effect, digits)
        low, high = (
            open_end if end is None else plain(end, digits)
            for end, open_end in zip(ends, open_ends, strict=True)
        )
        reach = "" if ends == (None, None) else f" (95% interval {low} to {high})"
        return f"{self.name}{': ' if self.name else ''}{text} {claim.unit}{reach}"


class Verdict(Settings):
    """What the results at a scale say about a claim."""

    claim: str
    digest: str = Field(description="Of the claim's definition in the registry")
    about: Claim
    verdict: VerdictName
    scale: str
    in_domain: bool = Field(description="Whether models and training are of the paper's size")
    parameters: list[int] = Field(
        description="Fewest and most parameters of its models; empty: not known"
    )
    reason: str
    contrasts: list[TestedContrast]
    p: float | None = Field(default=None, description="Largest of its contrasts'")
    p_adjusted: float | None = Field(default=None, description="By Holm, over its family")
    alpha: float
    seeds: int
    seeds_needed: int | None = Field(
        default=None,
        description="Seeds, of all, that decide it with 80% power; None: no number, or decided",
    )

    @property
    def where(self) -> str:
        """Scale, and size of the models, that it holds for."""
        return scale_and_size(self.scale, self.parameters)

    @property
    def words(self) -> str:
        """The verdict for readers; outside of the claim's domain it is one at this scale."""
        said: str = self.verdict
        if self.verdict == "no difference":
            said += f" (within {self.margin})"
        elif self.verdict == "mixed":
            said = self.about.mixed or said
        return said if self.in_domain or self.verdict not in DECIDED else f"{said} at this scale"

    @property
    def margin(self) -> str:
        """The margin for readers; empty: the claim has none."""
        margin = self.about.margin
        if margin is None:
            return ""
        ratio = self.about.compare == "ratio"
        return f"{1 / margin:.2f} to {margin:.2f}" if ratio else f"±{margin:g}"

    @property
    def job_ids(self) -> list[str]:
        """Jobs behind it, each once."""
        return sorted({job for one in self.contrasts for job in one.evidence.job_ids})


def decide(tested: TestedClaims, found: Mapping[str, Sequence[Evidence]]) -> list[Verdict]:
    """Return a verdict on every claim of which there is evidence, in the registry's order.

    Claims that the scale cannot test leave their family. Others of which nothing was built stay in
    it, so that what is decided is no surer of itself where less was built.
    """
    cases = {name: _Case(tested, name, found[name]) for name in tested.claims if name in found}
    corrected: dict[str, Corrected] = {}
    for names in tested.families.values():
        found_p = (cases[name].p if name in cases else None for name in names)
        p_values = [1.0 if p is None else p for p in found_p]  # what is not tested decides nothing
        corrected |= dict(zip(names, holm(p_values), strict=True))
    none = Corrected(1.0, 1)
    return [case.verdict(*corrected.get(name, none)) for name, case in cases.items()]


class _Case:
    """One claim with its evidence."""

    def __init__(self, tested: TestedClaims, name: str, found: Sequence[Evidence]) -> None:
        self.tested, self.name, self.found = tested, name, found
        self.claim = tested.claims[name]
        self.contrasts = [
            _tested(self.claim, one, contrast.name)
            for one, contrast in zip(found, self.claim.contrasts, strict=True)
        ]
        self.seeds = min(one.seeds for one in self.contrasts)
        self.obstacle = self._obstacle()
        self.speaks_for, self.p = self._together()

    def verdict(self, adjusted: float, share: int) -> Verdict:
        alpha = self.tested.alpha
        name = self._name(adjusted)
        needed = self._seeds_needed(alpha / share) if name == "inconclusive" else None
        parameters = [size for one in self.found for size in one.parameters]
        return Verdict(
            claim=self.name,
            digest=self.tested.digests[self.name],
            about=self.claim,
            verdict=name,
            scale=self.tested.scale,
            in_domain=self._in_domain(),
            parameters=[min(parameters), max(parameters)] if parameters else [],
            reason=self._reason(adjusted, needed),
            contrasts=self.contrasts,
            p=self.p,
            p_adjusted=None if self.p is None else adjusted,
            alpha=alpha,
            seeds=self.seeds,
            seeds_needed=needed,
        )

    def _obstacle(self) -> str | None:
        """Why it cannot be tested here; None: it can."""
        if (why := self.tested.not_testable.get(self.name)) is not None:
            return why
        for one in self.found:
            if one.overridden is not None:
                return one.overridden
            if not one.seeds and one.excluded:
                return f"no eligible seeds: {', '.join(map(str, one.excluded))} are exploratory"
        if not self.seeds:
            return "no seed has a value on both sides"
        if self.seeds > 1 and all(map(_constant, self.found)):
            return f"both models have {plain(self.found[0].values[0] or 0, 3)} for every seed"
        return None

    def _together(self) -> tuple[VerdictName | None, float | None]:
        """What all contrasts speak for together, with the largest of their p-values."""
        tests = [Tested(one.p, one.speaks_for) for one in self.contrasts if one.p is not None]
        if self.obstacle is not None or len(tests) < len(self.contrasts) or self._selected():
            return None, None
        p, speaks_for = combine(self.claim, tests)
        return speaks_for, p

    def _name(self, adjusted: float) -> VerdictName:
        if self.obstacle is not None:
            return "not testable"
        if self.claim.test is None:
            return "estimate"
        if self.speaks_for is None or adjusted >= self.tested.alpha:
            return "inconclusive"
        return self.speaks_for

    def _reason(self, adjusted: float, needed: int | None) -> str:
        words = [] if self.obstacle is None else [self.obstacle]
        words += [one.words(self.claim) for one in self.contrasts if one.effect is not None]
        words += [self._over()] if self.seeds else []
        if self.obstacle is None and self.claim.test is not None:
            if self._selected():
                words.append("a seed without a value may be the very thing claimed")
            elif self.p is not None and self.speaks_for is None:
                words.append("its contrasts decide differently")
            elif self.p is not None:
                words.append(f"{probability(self.p)}, by Holm {adjusted:.2g}")
            if needed is not None:
                words.append(f"{needed} seeds would decide it, with {POWER:.0%} power")
        return "; ".join(words)

    def _over(self) -> str:
        """What the effects are over."""
        unit, units = self.found[0].unit, self.found[0].units
        return f"{self.seeds} {self.claim.over}" + (f" and {units} {unit}" if units else "")

    def _selected(self) -> bool:
        """Whether seeds are left out because they have no value."""
        return any(
            one.seeds < len(numbers.seeds)
            for one, numbers in zip(self.contrasts, self.found, strict=True)
        )

    def _in_domain(self) -> bool:
        domain = self.claim.domain
        bounds = ((domain.parameters, "parameters"), (domain.tokens, "tokens"))
        return all(
            (sizes := getattr(one, name)) and min(sizes) >= least
            for one in self.found
            for least, name in bounds
        )

    def _seeds_needed(self, alpha: float) -> int | None:
        """Seeds, of all, that would decide it; None where no number of them is known to."""
        if self.claim.over != "seeds" or self._selected() or self.claim.test is None:
            return None
        if self.seeds < FEWEST_PAIRS:
            return FEWEST_PAIRS
        needed = [seeds_needed(self.claim, one, alpha) for one in self.found]
        return None if None in needed else max(filter(None, needed))


def _tested(claim: Claim, numbers: Evidence, name: str) -> TestedContrast:
    found = contrast_of(claim, numbers)
    if found is None:
        return TestedContrast(evidence=numbers, name=name, seeds=0)
    few = claim.test is None or found.seeds < FEWEST_PAIRS
    p, speaks_for = (None, None) if few else run_test(claim, found)
    effect, low, high = (
        one if one is None or claim.compare == "difference" else _ratio(one)
        for one in (found.effect, *found.interval())
    )
    return TestedContrast(
        evidence=numbers,
        name=name,
        seeds=found.seeds,
        effect=effect,
        ci_low=low,
        ci_high=high,
        p=p,
        speaks_for=speaks_for,
    )


def _ratio(logarithm: float) -> float | None:
    """The ratio of a logarithm; None: it is not bounded."""
    return math.exp(logarithm) if math.isfinite(logarithm) else None


def _constant(numbers: Evidence) -> bool:
    """Whether every seed of both models gave the same number, and the items did not vary."""
    values = {*numbers.values, *numbers.baseline_values}
    return len(values) == 1 and not numbers.unit_variance and not numbers.after
