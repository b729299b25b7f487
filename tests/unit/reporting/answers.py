"""Answers to the registered questions from synthetic results."""

from typing import Any

from fake_configs import RESOLVER, resolved_artifact
from judging import claims_of

from difftransformer.config.resolved_artifacts import TestedClaims
from difftransformer.reporting.collect import Results
from difftransformer.reporting.evidence import Evidence
from difftransformer.reporting.verdict_job import gather_evidence
from difftransformer.reporting.verdicts import Verdict, decide


def claims_on(*names: str, seeds: tuple[int, ...] = (0, 1, 2), **changes: Any) -> TestedClaims:
    """The registered claims with these tables; no seed is exploratory."""
    tables = [resolved_artifact(name, seeds=seeds) for name in names]
    return claims_of(**{"claims": RESOLVER.registry.claims, "tables": tables} | changes)


def verdicts_of(tested: TestedClaims, results: Results) -> dict[str, Verdict]:
    """The verdicts that results come to, by claim."""
    evidence: dict[str, list[Evidence]] = {}
    for artifact in tested.tables:
        evidence |= gather_evidence(tested, artifact, results)
    return {verdict.claim: verdict for verdict in decide(tested, evidence)}
