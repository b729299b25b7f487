"""Text of tables that all readable formats share."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from difftransformer.config.registry import VerdictName
from difftransformer.reporting.document import Cell, Section, TableDocument

if TYPE_CHECKING:
    from pandas import DataFrame

VERDICT_SYMBOLS: dict[VerdictName, str] = {
    "reproduced": "✓", "opposite": "✗", "no difference": "=", "mixed": "±", "inconclusive": "?",
    "not testable": "–", "estimate": "·",
}  # fmt: skip


def text_frame(
    section: Section, escape: Callable[[str], str], cell_text: Callable[[Cell], str]
) -> "DataFrame":
    """Return the visible cells of a section as a DataFrame of texts, "" where there is no cell."""
    import pandas as pd

    columns = section.visible()
    cells = [[section.cell(row.run, column.id) for column in columns] for row in section.rows]
    return pd.DataFrame(
        [["" if cell is None else cell_text(cell) for cell in line] for line in cells],
        index=[escape(row.label) for row in section.rows],
        columns=[escape(column.header) for column in columns],
    )


def table_remarks(table: TableDocument) -> list[str]:
    """Return the notes below a table, on its scale, seeds, published numbers and measurements."""
    lines = [f"Scale {table.scale}.", *table.notes]
    if table.published is not None:
        has_values = any(cell.paper_text is not None for cell in table.cells())
        lines.append(
            f"{'In brackets: published' if has_values else 'Published'} at the paper's scale, "
            f"{table.published.source} ({table.published.scale}). Compare signs and order, not "
            "levels."
        )
        lines += table.published.notes
    return lines + _section_notes(table.sections)


def _section_notes(sections: Sequence[Section]) -> list[str]:
    """Return the notes of sections with their titles; notes of all sections have no title."""
    titles_by_note: dict[str, list[str]] = {}
    for section in sections:
        for note in section.notes:
            titles_by_note.setdefault(note, []).append(section.title)
    return [
        note if len(titles) == len(sections) else f"{', '.join(titles)}: {note}"
        for note, titles in titles_by_note.items()
    ]
