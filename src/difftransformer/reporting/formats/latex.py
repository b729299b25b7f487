r"""A table as a LaTeX table environment with booktabs, for ``\input``."""

import re

from difftransformer.reporting.document import Cell, Section, TableDocument
from difftransformer.reporting.formats.table_text import table_remarks, text_frame

_SIGNS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "[": "{[}", "]": "{]}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$", "−": r"$-$", "–": "--", "×": r"$\times$", "λ": r"$\lambda$", "Δ": r"$\Delta$",
    "α": r"$\alpha$", "β": r"$\beta$", "θ": r"$\theta$", "κ": r"$\kappa$", "τ": r"$\tau$",
    "√": r"$\sqrt{}$", "∞": r"$\infty$", "“": "``", "”": "''", "↑": r"$\uparrow$",
    "↓": r"$\downarrow$", "★": r"$\star$", "†": r"$\dagger$", "✓": r"$\surd$",
    "✗": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$",
    "…": r"\ldots{}", "’": "'", "\N{NO-BREAK SPACE}": "~",
}  # fmt: skip
_OPENING = re.compile(r'(?<![^\s(\[{–—/-])"(?=\S)')
"""An opening quotation mark."""
_LATIN = 0x250
"""First code point that LaTeX with UTF-8 may not know."""


def to_latex(table: TableDocument) -> str:
    """Return a table with its notes as LaTeX, which needs the packages booktabs and graphicx."""
    lines = [
        r"% needs \usepackage{booktabs,graphicx}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape(table.title)}. {escape(table.caption)}}}",
        rf"\label{{tab:{re.sub(r'[^A-Za-z0-9-]', '-', table.artifact)}}}",
    ]
    for section in table.sections:
        if len(table.sections) > 1:
            lines += [rf"\par\medskip\textit{{{escape(section.title)}}}\par\smallskip"]
        lines += [r"\resizebox{\linewidth}{!}{%", *_grid(section), "}"]
    lines += [r"\par\medskip", r"\begin{minipage}{\linewidth}\footnotesize\raggedright"]
    lines += [f"{escape(line)}\\par" for line in table_remarks(table)]
    return "\n".join([*lines, r"\end{minipage}", r"\end{table}"]) + "\n"


def escape(text: str) -> str:
    """Return a text escaped for LaTeX; an unsupported character becomes its code point."""
    quoted = _OPENING.sub("“", " ".join(text.split())).replace('"', "”")
    parts = quoted.split("λ_init")
    return r"$\lambda_{\mathrm{init}}$".join(
        "".join(_escaped(sign) for sign in part) for part in parts
    )


def _escaped(sign: str) -> str:
    if sign in _SIGNS:
        return _SIGNS[sign]
    return sign if ord(sign) < _LATIN else f"{{[}}U+{ord(sign):04X}{{]}}"


def _grid(section: Section) -> list[str]:
    frame = text_frame(section, escape, _cell)
    columns = f"l{'r' * frame.shape[1]}"
    return frame.style.to_latex(hrules=True, column_format=columns).splitlines()


def _cell(cell: Cell) -> str:
    if cell.paper_text is None:
        return escape(cell.text)
    return rf"{escape(cell.text)} {{\scriptsize [{escape(cell.paper_text)}]}}"
