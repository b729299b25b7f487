"""Helpers that build claims and evidence, and return verdicts."""

from collections.abc import Mapping, Sequence
from typing import Any

from difftransformer.config.registry import Claim, ClaimContrast, Domain
from difftransformer.config.resolved_artifacts import TestedClaims
from difftransformer.reporting.evidence import Evidence
from difftransformer.reporting.verdicts import Verdict, decide

DOMAIN = Domain(parameters=1e9, tokens=1e10, data="English text")


def claim(test: str | None = "difference", **changes: Any) -> Claim:
    """A claim on model x against model y, by a table t."""
    if test in ("equivalence", "noninferiority"):
        changes = {"margin": 0.01, "margin_reason": "made up"} | changes
    if test is None:
        changes = {"endpoint": "estimate", "powered_for": None} | changes
    defaults = {
        "question": "Is x below y?", "definition": "d", "source": "s", "paper": "diff_v1",
        "endpoint": "primary", "artifact": "t", "unit": "nats", "direction": "lower",
        "contrasts": [ClaimContrast(metric="m", row="x", baseline="y")], "powered_for": 1.0,
        "domain": DOMAIN,
    }  # fmt: skip
    return Claim(**defaults | changes, test=test)


def evidence(
    ours: Sequence[float | None], theirs: Sequence[float | None] | float = 0.0, **changes: Any
) -> Evidence:
    """Numbers of a contrast, a value a seed; by default against zeros."""
    others = [theirs] * len(ours) if isinstance(theirs, float) else list(theirs)
    defaults = {"metric": "m", "row": "x", "baseline": "y", "job_ids": ["job"]}
    return Evidence(
        seeds=list(range(len(ours))),
        values=list(ours),
        baseline_values=others,
        **defaults | changes,
    )


def times(
    ours: Sequence[float | None], theirs: Sequence[float | None], end: float = 2000
) -> Evidence:
    """Times at which a probe saw an event; None: not until the end."""
    before = [[end if seed is None else seed - 20 for seed in side] for side in (ours, theirs)]
    return evidence(ours, theirs, lower_bounds=before[0], baseline_lower_bounds=before[1])


def claims_of(claims: Mapping[str, Claim], **changes: Any) -> TestedClaims:
    """Claims for the job that tests them."""
    defaults = {
        "scale": "tiny", "alpha": 0.05, "note": "n", "tables": [],
        "digests": {name: seed.digest for name, seed in claims.items()},
    }  # fmt: skip
    return TestedClaims(claims=dict(claims), **defaults | changes)


def verdict(tested_claim: Claim, *evidence: Evidence, **changes: Any) -> Verdict:
    """The verdict on a claim that is alone in its family."""
    return decide(claims_of({"C": tested_claim}, **changes), {"C": evidence})[0]
