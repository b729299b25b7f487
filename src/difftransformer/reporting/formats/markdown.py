"""A table as Markdown with pipe tables."""

import re

from difftransformer.reporting.document import Cell, TableDocument
from difftransformer.reporting.formats.table_text import table_remarks, text_frame

_SPECIAL = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_{}[]<>|#"})


def to_markdown(table: TableDocument) -> str:
    """Return a table with its notes as Markdown."""
    parts = [f"# {escape(table.title)}", escape(table.caption)]
    for section in table.sections:
        if len(table.sections) > 1:
            parts.append(f"## {escape(section.title)}")
        parts.append(text_frame(section, escape, _cell).to_markdown(disable_numparse=True))
    parts.append("\n".join(f"- {escape(line)}" for line in table_remarks(table)))
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Return a text with the special characters of Markdown and HTML escaped."""
    return _escaped(" ".join(text.split()))


def prose(text: str) -> str:
    """Return a text escaped for Markdown, except for code in backticks."""
    parts = re.split(r"(`[^`|]+`)", " ".join(text.split()))
    return "".join(part if index % 2 else _escaped(part) for index, part in enumerate(parts))


def code(text: str) -> str:
    """Return a name as Markdown code, within more backticks than the name contains."""
    name = " ".join(text.split())
    longest = max(map(len, re.findall("`+", name)), default=0)
    fence = "`" * (longest + 1)
    space = " " if "`" in name[:1] + name[-1:] else ""
    return f"{fence}{space}{name}{space}{fence}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").translate(_SPECIAL)


def _cell(cell: Cell) -> str:
    return escape(cell.text if cell.paper_text is None else f"{cell.text} [{cell.paper_text}]")
