"""Putting sections together into a table, with its verdicts and its published twin."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.errors import ConfigError
from difftransformer.reporting.conditions import seeds_note
from difftransformer.reporting.document import Cell, Published, Section, TableDocument
from difftransformer.reporting.interpretations import interpretations_note
from difftransformer.reporting.verdicts import judge


def assemble(
    artifact: ArtifactSlice, sections: list[Section], *, seeded: bool = True
) -> TableDocument:
    """Make the table of an artifact from its sections and judge its claims.

    ``seeded`` says whether its numbers are over seeds, which a note then names.

    Raises:
        ConfigError: a claim is about a column that no section has, or two sections have different
            values at one row and column.
    """
    _require_one_value(artifact.artifact, sections)
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


def _require_one_value(artifact: str, sections: list[Section]) -> None:
    """Whoever looks a number up by its row and column must not depend on the order of sections."""
    seen: dict[tuple[str, str], Cell] = {}
    for cell in (cell for section in sections for cell in section.cells):
        other = seen.setdefault((cell.row, cell.column), cell)
        if other.value != cell.value:
            raise ConfigError(
                f"config/artifacts.yaml: artifacts.{artifact}.sections: two have a number of "
                f"'{cell.row}' in column '{cell.column}', {other.value} and {cell.value}: give one "
                "of them an artifact of its own"
            )
