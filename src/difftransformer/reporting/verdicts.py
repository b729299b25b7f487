"""Verdicts on registered claims, from the evidence of all their tables; see docs/verdicts.md."""

import math
from collections.abc import Mapping, Sequence

from pydantic import Field

from difftransformer.config.base import Settings
from difftransformer.config.registry import DECIDED, Claim, VerdictName
from difftransformer.config.resolved_artifacts import TestedClaims
from difftransformer.reporting.claim_tests import (
    TestResult,
    combine_tests,
    estimate_contrast,
    run_test,
    seeds_needed,
)
from difftransformer.reporting.evidence import Evidence
from difftransformer.reporting.number_format import (
    decimals_for,
    format_number,
    format_p_value,
    format_signed,
    scale_and_size,
)
from difftransformer.reporting.statistics import MIN_PAIRS, POWER, AdjustedP, holm


class TestedContrast(Evidence):
    """The evidence on one contrast with its estimate and test; missing numbers are None."""

    name: str = Field(description="Name of the contrast, if the claim has two")
    pairs: int = Field(default=0, description="Seeds that have a value on both sides")
    effect: float | None = Field(default=None, description="Mean difference, or mean ratio")
    ci_low: float | None = None
    ci_high: float | None = None
    p: float | None = None
    speaks_for: VerdictName | None = Field(default=None, description="Verdict that p supports")

    def words(self, claim: Claim) -> str:
        """Return the effect with its unit and interval in words."""
        if self.effect is None:
            return "no value"
        ends = (self.ci_low, self.ci_high)
        if claim.compare == "ratio":
            text, digits, open_ends = f"× {self.effect:.2f}", 2, ("0", "∞")
        else:
            digits, open_ends = decimals_for(self.effect, *ends), ("", "")
            text = format_signed(self.effect, digits)
        low, high = (
            open_end if end is None else format_number(end, digits)
            for end, open_end in zip(ends, open_ends, strict=True)
        )
        interval = "" if ends == (None, None) else f" (95% interval {low} to {high})"
        return f"{self.name}{': ' if self.name else ''}{text} {claim.unit}{interval}"


class Verdict(Settings):
    """The verdict on one claim from the results at a scale."""

    claim: str
    digest: str = Field(description="Digest of the claim's definition in the registry")
    about: Claim
    verdict: VerdictName
    scale: str
    in_domain: bool = Field(description="Whether models and training are of the paper's size")
    parameters: list[int] = Field(
        description="Fewest and most parameters of its models; empty: not known"
    )
    reason: str
    contrasts: list[TestedContrast]
    p: float | None = Field(default=None, description="Largest p-value of the contrasts")
    p_adjusted: float | None = Field(
        default=None, description="p after Holm's correction over the family"
    )
    alpha: float
    seeds: int
    seeds_needed: int | None = Field(
        default=None, description="Total seeds for 80% power; None: decided, or no number is enough"
    )

    @property
    def where(self) -> str:
        """Scale and the model sizes of the results as text."""
        return scale_and_size(self.scale, self.parameters)

    @property
    def words(self) -> str:
        """Verdict in words, qualified by the scale where the claim's domain excludes the scale."""
        text: str = self.verdict
        if self.verdict == "no difference":
            text += f" (within {self.margin})"
        elif self.verdict == "mixed":
            text = self.about.mixed or text
        return text if self.in_domain or self.verdict not in DECIDED else f"{text} at this scale"

    @property
    def margin(self) -> str:
        """Margin of the claim in words, or an empty text if it has none."""
        margin = self.about.margin
        if margin is None:
            return ""
        ratio = self.about.compare == "ratio"
        return f"{1 / margin:.2f} to {margin:.2f}" if ratio else f"±{margin:g}"

    @property
    def job_ids(self) -> list[str]:
        """Ids of the jobs behind the verdict, without duplicates."""
        return sorted({job for contrast in self.contrasts for job in contrast.job_ids})


def decide(tested: TestedClaims, evidence: Mapping[str, Sequence[Evidence]]) -> list[Verdict]:
    """Return a verdict on each claim that has evidence, in the order of the registry of claims.

    Claims that the scale cannot test do not count in their family of tests. Claims without results
    do, so that building fewer tables makes no test less strict.
    """
    cases = {
        name: _Case(tested, name, evidence[name]) for name in tested.claims if name in evidence
    }
    corrected: dict[str, AdjustedP] = {}
    for names in tested.families.values():
        claim_p = (cases[name].p if name in cases else None for name in names)
        p_values = [1.0 if p is None else p for p in claim_p]  # 1 for a claim that is not tested
        corrected |= dict(zip(names, holm(p_values), strict=True))
    none = AdjustedP(1.0, 1)
    return [case.verdict(*corrected.get(name, none)) for name, case in cases.items()]


class _Case:
    """One claim with its evidence."""

    def __init__(self, tested: TestedClaims, name: str, evidence: Sequence[Evidence]) -> None:
        self.tested, self.name = tested, name
        self.claim = tested.claims[name]
        self.contrasts = [
            _tested(self.claim, numbers, contrast.name)
            for numbers, contrast in zip(evidence, self.claim.contrasts, strict=True)
        ]
        self.seeds = min(contrast.pairs for contrast in self.contrasts)
        self.obstacle = self._obstacle()
        self.speaks_for, self.p = self._combined()

    def verdict(self, adjusted: float, divisor: int) -> Verdict:
        alpha = self.tested.alpha
        name = self._name(adjusted)
        needed = self._seeds_needed(alpha / divisor) if name == "inconclusive" else None
        parameters = [size for contrast in self.contrasts for size in contrast.parameters]
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
        """Reason why the claim cannot be tested here; None: it can."""
        if (why := self.tested.not_testable.get(self.name)) is not None:
            return why
        for numbers in self.contrasts:
            if numbers.overridden is not None:
                return numbers.overridden
            if not numbers.seeds and numbers.excluded:
                return f"no eligible seeds: {', '.join(map(str, numbers.excluded))} are exploratory"
        if not self.seeds:
            return "no seed has a value on both sides"
        if self.seeds > 1 and all(map(_constant, self.contrasts)):
            return (
                f"both models have {format_number(self.contrasts[0].values[0] or 0, 3)} for every "
                "seed"
            )
        return None

    def _combined(self) -> tuple[VerdictName | None, float | None]:
        """Verdict that all contrasts support together, with the largest p-value."""
        tests = [
            TestResult(contrast.p, contrast.speaks_for)
            for contrast in self.contrasts
            if contrast.p is not None
        ]
        if self.obstacle is not None or len(tests) < len(self.contrasts) or self._selected():
            return None, None
        p, speaks_for = combine_tests(self.claim, tests)
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
        words += [
            contrast.words(self.claim) for contrast in self.contrasts if contrast.effect is not None
        ]
        words += [self._over()] if self.seeds else []
        if self.obstacle is None and self.claim.test is not None:
            if self._selected():
                words.append("not tested, because seeds without a value are excluded")
            elif self.p is not None and self.speaks_for is None:
                words.append("the contrasts support different verdicts")
            elif self.p is not None:
                words.append(f"{format_p_value(self.p)}, {adjusted:.2g} after Holm")
            if needed is not None:
                words.append(f"{needed} seeds needed for {POWER:.0%} power")
        return "; ".join(words)

    def _over(self) -> str:
        """Sample sizes of the effects, in words: seeds or processes, and items."""
        unit, n_items = self.contrasts[0].sampling_unit, self.contrasts[0].n_items
        return f"{self.seeds} {self.claim.over}" + (f" and {n_items} {unit}" if n_items else "")

    def _selected(self) -> bool:
        """Whether seeds are excluded because they have no value."""
        return any(contrast.pairs < len(contrast.seeds) for contrast in self.contrasts)

    def _in_domain(self) -> bool:
        domain = self.claim.domain
        bounds = ((domain.parameters, "parameters"), (domain.tokens, "tokens"))
        return all(
            (sizes := getattr(contrast, name)) and min(sizes) >= least
            for contrast in self.contrasts
            for least, name in bounds
        )

    def _seeds_needed(self, alpha: float) -> int | None:
        """Total seeds for 80% power; None if no number is known to be enough."""
        if self.claim.over != "seeds" or self._selected() or self.claim.test is None:
            return None
        if self.seeds < MIN_PAIRS:
            return MIN_PAIRS
        needed = [seeds_needed(self.claim, contrast, alpha) for contrast in self.contrasts]
        return None if None in needed else max(filter(None, needed))


def _tested(claim: Claim, numbers: Evidence, name: str) -> TestedContrast:
    estimate = estimate_contrast(claim, numbers)
    if estimate is None:
        return TestedContrast(**dict(numbers), name=name)
    few = claim.test is None or estimate.seeds < MIN_PAIRS
    p, speaks_for = (None, None) if few else run_test(claim, estimate)
    effect, low, high = (
        value if value is None or claim.compare == "difference" else _ratio(value)
        for value in (estimate.effect, *estimate.interval())
    )
    return TestedContrast(
        **dict(numbers),
        name=name,
        pairs=estimate.seeds,
        effect=effect,
        ci_low=low,
        ci_high=high,
        p=p,
        speaks_for=speaks_for,
    )


def _ratio(logarithm: float) -> float | None:
    """Ratio from its logarithm; None: not bounded."""
    return math.exp(logarithm) if math.isfinite(logarithm) else None


def _constant(numbers: Evidence) -> bool:
    """Whether every seed of both models gave the same number, and the items did not vary."""
    values = {*numbers.values, *numbers.baseline_values}
    return len(values) == 1 and not numbers.item_variance and not numbers.lower_bounds
