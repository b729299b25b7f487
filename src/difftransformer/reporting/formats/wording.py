"""What stands around a table in every readable format, in the same words."""

from collections.abc import Sequence

from difftransformer.config.registry import VerdictName
from difftransformer.reporting.document import Cell, Section, TableDocument

SYMBOLS: dict[VerdictName, str] = {
    "reproduced": "✓", "opposite": "✗", "no difference": "=", "mixed": "±", "inconclusive": "?",
    "not testable": "–", "estimate": "·",
}  # fmt: skip


def cell_text(cell: Cell | None) -> str:
    """Our number, and the published one in brackets."""
    if cell is None:
        return ""
    return cell.text if cell.paper_text is None else f"{cell.text} [{cell.paper_text}]"


def remarks(table: TableDocument) -> list[str]:
    """Sentences under the table: scale, seeds, published numbers, how each section was measured."""
    lines = [f"Scale {table.scale}.", *table.notes]
    if table.published is not None:
        beside = any(cell.paper_text is not None for cell in table.cells())
        lines.append(
            f"{'[ ] published' if beside else 'Published'}, at the paper's scale: "
            f"{table.published.source} ({table.published.scale}). Compare signs and order, not "
            "levels."
        )
        lines += table.published.notes
    return lines + _section_notes(table.sections)


def _section_notes(sections: Sequence[Section]) -> list[str]:
    """Notes of the sections with their titles; what is true of all is said once, without."""
    told: dict[str, list[str]] = {}
    for section in sections:
        for note in section.notes:
            told.setdefault(note, []).append(section.title)
    return [
        note if len(titles) == len(sections) else f"{', '.join(titles)}: {note}"
        for note, titles in told.items()
    ]
