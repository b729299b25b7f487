"""Rows that show another run at a scale: the same table from models that the scale can train.

A small model is asked for needles in the words of the corpus it was trained on, a large one in
English: the artifact and its claims stay the same, and a scale says which runs stand in for them.
"""

from collections.abc import Mapping

from difftransformer.config.artifacts import ArtifactConfig, ClaimConfig
from difftransformer.config.validation import lookup, nearest
from difftransformer.errors import ConfigError

StandIns = Mapping[str, Mapping[str, str]]
"""Artifact -> run of its rows -> run that stands in for it."""


def check_stand_ins(
    stand_ins: StandIns, artifacts: Mapping[str, ArtifactConfig], place: str
) -> None:
    """Check that every artifact has the rows that others stand in for.

    Raises:
        ConfigError: One line with the key path, the unknown name and the nearest one.
    """
    for name, rows in stand_ins.items():
        known = lookup(artifacts, name, "artifact", f"{place}: rows").runs()
        for run in rows:
            if run not in known:
                raise ConfigError(
                    f"{place}: rows.{name}: '{run}' is none of its rows{nearest(run, known)}"
                )


def stand_in_rows(artifact: ArtifactConfig, runs: Mapping[str, str]) -> ArtifactConfig:
    """Return the artifact with its rows replaced; published values stay with their rows."""
    if not runs:
        return artifact
    sections = []
    for part in artifact.sections:
        rows = [
            row.model_copy(
                update={
                    "run": runs.get(row.run, row.run),
                    "paper": row.paper or row.run,
                    "against": runs.get(row.against or "", row.against),
                }
            )
            for row in part.rows
        ]
        against = runs.get(part.against or "", part.against)
        sections.append(part.model_copy(update={"rows": rows, "against": against}))
    own = [runs.get(run, run) for run in artifact.interventions]
    return artifact.model_copy(update={"sections": sections, "interventions": own})


def stand_in_claim(claim: ClaimConfig, stand_ins: StandIns) -> ClaimConfig:
    """Return the claim about the runs that its artifact shows."""
    runs = stand_ins.get(claim.artifact, {})
    row, against = runs.get(claim.row, claim.row), claim.against
    if isinstance(against, str):
        against = runs.get(against, against)
    return claim.model_copy(update={"row": row, "against": against})
