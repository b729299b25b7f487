"""Claims and evidence as tests make them, and verdicts of a table alone."""

from collections.abc import Sequence
from typing import Any

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.config.claims import ClaimSlice, VerdictsSlice
from difftransformer.reporting.document import Evidence, TableDocument
from difftransformer.reporting.verdicts import Verdict, judge

DECLARED = {"date": "2026-11-22", "commit": "0123abc"}


def claim(test: str = "difference", **changes: Any) -> ClaimSlice:
    """A claim about row x against row y, of a table t."""
    if test in ("equivalence", "noninferiority"):
        changes = {"margin": 0.01, "margin_reason": "made up"} | changes
    known = {
        "text": "t", "source": "s", "metric": "m", "row": "x", "against": "y",
        "declared": DECLARED, "artifact": "t",
    }  # fmt: skip
    return ClaimSlice(**known | changes, test=test)


def evidence(
    ours: Sequence[float | None], theirs: Sequence[float | None] | float = 0.0, **changes: Any
) -> Evidence:
    """Evidence on claim C, a value a seed; by default against zeros."""
    others = [theirs] * len(ours) if isinstance(theirs, float) else list(theirs)
    return Evidence(
        claim="C", seeds=list(range(len(ours))), ours=list(ours), theirs=others,
        **{"job_ids": ["job"]} | changes,
    )  # fmt: skip


def verdict(asked: ClaimSlice, found: Evidence, **changes: Any) -> Verdict:
    """The verdict on a claim that is alone in its family."""
    slice = VerdictsSlice(scale="tiny", claims={"C": asked}, **changes)
    return judge(slice, {"C": found})[0]


def verdicts_of(artifact: ArtifactSlice, table: TableDocument) -> dict[str, Verdict]:
    """Verdicts on the claims of one table, as if there were no other."""
    slice = VerdictsSlice(scale=table.scale, claims=artifact.claims)
    return {one.claim: one for one in judge(slice, {one.claim: one for one in table.evidence})}
