"""Rows whose source leaves something open: they are marked, and what is ours is said."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.document import Section

MARK = " *"


def marked(artifact: ArtifactSlice, sections: list[Section]) -> tuple[list[Section], list[str]]:
    """Mark such rows in every section, and say in one note what is ours in each."""
    reasons = {
        row.run: (row.label, str(reason))
        for part in artifact.sections
        for row in part.rows
        if (reason := row.facts.get("interpretation")) is not None
    }
    if not reasons:
        return sections, []
    listed = "; ".join(dict.fromkeys(f"{label}: {why}" for label, why in reasons.values()))
    note = (
        "* An interpretation: the source leaves something open, and the row shows our reading of "
        f"it, not the authors' model. {listed}."
    )
    return [_marked(section, set(reasons)) for section in sections], [note]


def _marked(section: Section, runs: set[str]) -> Section:
    rows = [
        # A row of one backend is named {run}/{backend}.
        row.model_copy(update={"label": row.label + MARK}) if row.run.split("/")[0] in runs else row
        for row in section.rows
    ]
    return section.model_copy(update={"rows": rows})
