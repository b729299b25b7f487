"""Putting sections together into a table, with its verdicts and its published twin."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.conditions import seeds_note
from difftransformer.reporting.document import Published, Section, TableDocument
from difftransformer.reporting.interpretations import interpretations_note
from difftransformer.reporting.verdicts import judge


def assemble(
    artifact: ArtifactSlice, sections: list[Section], *, seeded: bool = True
) -> TableDocument:
    """Make the table of an artifact from its sections and judge its claims.

    ``seeded`` says whether its numbers are over seeds, which a note then names.

    Raises:
        ConfigError: a claim is about a column that no section has.
    """
    paper = artifact.paper
    table = TableDocument(
        artifact=artifact.artifact,
        title=artifact.title,
        caption=artifact.caption,
        scale=artifact.scale,
        seeds=artifact.seeds,
        sections=sections,
        published=None
        if paper is None
        else Published(
            title=paper.title, source=paper.source, scale=paper.scale, notes=paper.notes
        ),
        notes=[*([seeds_note(artifact)] if seeded else []), *interpretations_note(artifact)],
    )
    return table.model_copy(update={"verdicts": judge(artifact, table)})
