"""Between which values a mechanism can put the context RMS: as the DIFF V2 post says, else ours.

All under the post's assumption of uncorrelated values with an RMS of 1, where the context RMS is
the Euclidean norm of a row of weights.
"""

from typing import NamedTuple

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.evaluations.context_rms.settings import Options
from difftransformer.reporting.document import Cell, Column
from difftransformer.reporting.number_format import format_number
from difftransformer.reporting.section_context import SectionContext

BOUNDS, ORIGIN = "bounds", "bounds_from"
POST, OURS = "the post", "ours"


class Derived(NamedTuple):
    """Bounds that the post does not print."""

    text: str
    reason: str


_TWO_MAPS = Derived(
    "|1 − λ|/√n to 1 + |λ|",
    "a row sums to 1 − λ, so equal weights make its norm smallest; the norms of its maps add up to "
    "1 + |λ| at most, which λ < 0 reaches with both on one token and λ > 0 does not, whose largest "
    "is √(1 + λ²) with the maps on two; λ is learned, of either sign and without a bound",
)
DERIVED = {
    ("diff_v1", None): _TWO_MAPS,
    ("shared_diff", None): _TWO_MAPS,
    ("diff_v2", "none"): Derived("0 to √2", "V2's at a factor of 1, where equal maps cancel"),
    ("diff_v2", "raw"): Derived(
        "0 to ∞", "equal maps cancel at λ = 1; that it is unbounded from above is the post's"
    ),
    ("dint", None): Derived(
        "1/√n to √((1 + |λ|)² + λ²)",
        "a row sums to 1, so that equal weights make its norm smallest, as in softmax; it is "
        "largest where the first map and the one that is added to it, the mean for λ > 0 and the "
        "second for λ < 0, are on one token and the third is on another",
    ),
    ("tda", None): Derived(
        "0 to √n max(0, 1 − τ_n)^p",
        "each of n weights has at most the size (1 − τ_n)^p, and none need exceed the threshold",
    ),
}
"""By variant and `lambda_form`, for rows without published values."""


def published(context: SectionContext[Options], run: str) -> tuple[float, float, float] | None:
    """Published bounds of a row: a lower one, one that is divided by √n, and the upper one."""
    low, by_root_n, high = (
        context.published.number(run, name) for name in ("lower", "lower_by_root_n", "upper")
    )
    return None if high is None else (low or 0.0, by_root_n or 0.0, high)


def derived(row: RowSlice) -> Derived | None:
    """Bounds that we derived for a row's mechanism."""
    form = row.facts.get("lambda_form")
    return DERIVED.get((str(row.facts.get("variant")), None if form is None else str(form)))


def bounds(context: SectionContext[Options]) -> tuple[list[Column], list[Cell], list[str]]:
    """Columns, cells and notes: the bounds of every row that has some, and who says so."""
    cells = []
    shown: dict[Derived, list[str]] = {}
    for row in context.rows:
        known, own = published(context, row.run), derived(row)
        if known is not None:
            low = "1/√n" if known[1] else format_number(known[0], 0)
            text, origin, upper = f"{low} to {upper_name(known[2])}", POST, known[2]
        elif own is not None:
            text, origin, upper = own.text, OURS, None
            shown.setdefault(own, []).append(row.label)
        else:
            continue
        cells.append(Cell(row=row.run, column=BOUNDS, text=text, paper_value=upper))
        cells.append(Cell(row=row.run, column=ORIGIN, text=origin))
    if not cells:
        return [], [], []
    notes = []
    if shown:
        listed = "; ".join(f"{', '.join(rows)}: {own.reason}" for own, rows in shown.items())
        notes.append(f"Bounds from ours: our derivation, where the post prints none. {listed}.")
    columns = [Column(id=BOUNDS, header="Bounds"), Column(id=ORIGIN, header="Bounds from")]
    return columns, cells, notes


def upper_name(value: float) -> str:
    """Write an upper bound, √2 as such."""
    return "√2" if abs(value**2 - 2) < 1e-3 else f"{value:g}"
