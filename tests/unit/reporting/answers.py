"""The answers of made-up results to registered questions."""

from typing import Any

from fake_slices import CATALOGUE, artifact_slice
from judging import claims_of

from difftransformer.config.artifact_slices import TestedClaims
from difftransformer.reporting.collect import Results
from difftransformer.reporting.evidence import evidence
from difftransformer.reporting.table_job import make_table
from difftransformer.reporting.verdicts import Verdict, decide


def claims_on(*names: str, seeds: tuple[int, ...] = (0, 1, 2), **changes: Any) -> TestedClaims:
    """The registered claims with these tables; no seed is exploratory."""
    tables = [artifact_slice(name, seeds=seeds) for name in names]
    return claims_of(**{"claims": CATALOGUE.registry.claims, "tables": tables} | changes)


def verdicts_of(tested: TestedClaims, results: Results) -> dict[str, Verdict]:
    """The verdicts that results come to, by claim."""
    found = {}
    for artifact in tested.tables:
        table = make_table(artifact, results)
        for name, claim in tested.claims.items():
            if claim.artifact == artifact.artifact:
                found[name] = [
                    evidence(one, claim, name, artifact, table, results) for one in claim.contrasts
                ]
    return {one.claim: one for one in decide(tested, found)}
