"""Rows that show another run at a scale, or are left out of it.

An artifact names the models that the paper shows. A small scale trains no 3B model for them, and a
large one asks for needles in English, not in the words of a generated corpus: the artifact and its
claims stay the same, and a scale says which of its runs stand in for the rows.
"""

from collections.abc import Collection, Mapping

from difftransformer.config.artifacts import ArtifactConfig, ClaimConfig, SectionConfig
from difftransformer.config.validation import lookup, nearest
from difftransformer.errors import ConfigError

StandIns = Mapping[str, Mapping[str, str | None]]
"""Artifact -> run of its rows -> run that stands in for it; None leaves the row out."""


def check_stand_ins(
    stand_ins: StandIns,
    artifacts: Mapping[str, ArtifactConfig],
    runs: Collection[str],
    place: str,
) -> None:
    """Check that every artifact has the rows that others stand in for, and that those are runs.

    Raises:
        ConfigError: One line with the key path, the unknown name and the nearest one; or with the
            artifact of which a section is left without rows or shows a run twice.
    """
    for name, rows in stand_ins.items():
        artifact = lookup(artifacts, name, "artifact", f"{place}: stand_ins")
        known = artifact.runs()
        for run, other in rows.items():
            if run not in known:
                raise ConfigError(
                    f"{place}: stand_ins.{name}: '{run}' is none of its rows{nearest(run, known)}"
                )
            if other is not None and other not in runs:
                raise ConfigError(
                    f"{place}: stand_ins.{name}.{run}: unknown run '{other}'{nearest(other, runs)}"
                )
        for part in stand_in_rows(artifact, rows).sections:
            left = [row.run for row in part.rows]
            if not left or len(set(left)) < len(left):
                what = "no rows are left" if not left else f"a run stands twice among {left}"
                raise ConfigError(f"{place}: stand_ins.{name}: section '{part.title}': {what}")


def stand_in_rows(artifact: ArtifactConfig, runs: Mapping[str, str | None]) -> ArtifactConfig:
    """Return the artifact with its rows replaced; published values stay with their rows."""
    if not runs:
        return artifact
    own = [other for other in (runs.get(run, run) for run in artifact.interventions) if other]
    sections = [_section(part, runs) for part in artifact.sections]
    return artifact.model_copy(update={"sections": sections, "interventions": own})


def stand_in_claim(claim: ClaimConfig, stand_ins: StandIns) -> ClaimConfig:
    """Return the claim about the runs that its artifact shows."""
    runs = stand_ins.get(claim.artifact, {})
    row, against = runs.get(claim.row) or claim.row, claim.against
    if isinstance(against, str):
        against = runs.get(against) or against
    return claim.model_copy(update={"row": row, "against": against})


def _section(part: SectionConfig, runs: Mapping[str, str | None]) -> SectionConfig:
    rows = [
        row.model_copy(
            update={
                "run": other,
                "paper": row.paper or row.run,
                "against": runs.get(row.against or "", row.against),
                "retrieval": runs.get(row.retrieval or "", row.retrieval),
            }
        )
        for row in part.rows
        if (other := runs.get(row.run, row.run)) is not None
    ]
    against = runs.get(part.against or "", part.against)
    return part.model_copy(update={"rows": rows, "against": against})
