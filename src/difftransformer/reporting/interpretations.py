"""Rows whose source leaves something open, marked in their labels: what of them is ours."""

from difftransformer.config.artifact_slices import INTERPRETATION, MARK, ArtifactSlice


def interpretations_note(artifact: ArtifactSlice) -> list[str]:
    """Say once what is ours in each marked row; nothing where no row is marked."""
    reasons = {
        f"{row.label.removesuffix(MARK)}: {reason}": None
        for part in artifact.sections
        for row in part.rows
        if (reason := row.facts.get(INTERPRETATION)) is not None
    }
    if not reasons:
        return []
    return [
        "* An interpretation: the source leaves something open, and the row shows our reading of "
        f"it, not the authors' model. {'; '.join(reasons)}."
    ]
