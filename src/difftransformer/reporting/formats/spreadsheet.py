"""CSV files in which a spreadsheet evaluates no text as a formula."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame

_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\n]")
"""First characters of cells that spreadsheets may calculate (OWASP, CSV Injection)."""
_NUMBER = r"(?:[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|nan))?"
_NUMBERS = re.compile(rf"{_NUMBER}(?:;{_NUMBER})*", re.IGNORECASE)
"""A number, or several with semicolons between them, of which some may be absent."""


def to_csv(frame: "DataFrame") -> str:
    """Return a DataFrame as CSV text, one line per row; equal frames give equal text.

    A text that a spreadsheet would evaluate gets a leading apostrophe. Numbers, and texts that are
    lists of numbers, are unchanged.
    """
    import pandas as pd

    lines = [[_text(cell) for cell in line] for line in frame.itertuples(index=False)]
    safe = pd.DataFrame(lines, columns=frame.columns, dtype=object)
    return safe.to_csv(index=False, lineterminator="\n")


def _text(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    text = cell.replace("\r", "\n")  # the csv module leaves it unquoted, where it ends a line
    return f"'{text}" if _FORMULA.match(text) and not _NUMBERS.fullmatch(text) else text
