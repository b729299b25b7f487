"""Bounds of the context RMS of each attention variant: from the DIFF V2 post, or derived by us.

The post assumes uncorrelated values with an RMS of 1; then the context RMS is the Euclidean norm of
a row of attention weights.
"""

from typing import NamedTuple

from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.evaluations.context_rms.settings import Options
from difftransformer.reporting.document import Cell, Column
from difftransformer.reporting.number_format import format_number
from difftransformer.reporting.section_context import SectionContext

BOUNDS, ORIGIN = "bounds", "bounds_from"
POST, OURS = "the post", "ours"


class DerivedBounds(NamedTuple):
    """Bounds of the context RMS that we derived, as text, and the reason for them."""

    text: str
    reason: str


_TWO_MAPS = DerivedBounds(
    "|1 − λ|/√n to 1 + |λ|",
    "a row sums to 1 − λ, so its norm is smallest for equal weights; it is at most the sum of the "
    "norms of the maps, 1 + |λ|, reached for λ < 0 with both maps on one token; for λ > 0 the "
    "largest is √(1 + λ²), with the maps on two tokens; λ is learned and unbounded",
)
DERIVED = {
    ("diff_v1", None): _TWO_MAPS,
    ("shared_diff", None): _TWO_MAPS,
    ("diff_v2", "none"): DerivedBounds(
        "0 to √2", "V2's bounds at a factor of 1, where equal maps cancel"
    ),
    ("diff_v2", "raw"): DerivedBounds(
        "0 to ∞", "equal maps cancel at λ = 1; the post states that it is unbounded from above"
    ),
    ("dint", None): DerivedBounds(
        "1/√n to √((1 + |λ|)² + λ²)",
        "a row sums to 1, so its norm is smallest for equal weights, as in softmax; it is largest "
        "with the first map and the added one (the mean for λ > 0, the second for λ < 0) on one "
        "token and the third on another",
    ),
    ("tda", None): DerivedBounds(
        "0 to √n max(0, 1 − τ_n)^p",
        "each of n weights is at most (1 − τ_n)^p, and none need exceed the threshold",
    ),
}
"""(Attention variant, `lambda_form`) -> bounds, for variants without published bounds."""


def published(context: SectionContext[Options], run: str) -> tuple[float, float, float] | None:
    """Return the published bounds of a run's context RMS, or None if there are none.

    The three numbers are the lower bound, the lower bound times √n, and the upper bound.
    """
    low, by_root_n, high = (
        context.published.number(run, name) for name in ("lower", "lower_by_root_n", "upper")
    )
    return None if high is None else (low or 0.0, by_root_n or 0.0, high)


def derived(row: ResolvedRow) -> DerivedBounds | None:
    """Return the bounds that we derived for a row's attention variant, or None."""
    form = row.facts.get("lambda_form")
    return DERIVED.get((str(row.facts.get("variant")), None if form is None else str(form)))


def bounds(context: SectionContext[Options]) -> tuple[list[Column], list[Cell], list[str]]:
    """Return columns, cells and notes for a table of every model's bounds and their origin."""
    cells = []
    derivations: dict[DerivedBounds, list[str]] = {}
    for row in context.rows:
        of_post, ours = published(context, row.run), derived(row)
        if of_post is not None:
            low = "1/√n" if of_post[1] else format_number(of_post[0], 0)
            text, origin, upper = f"{low} to {upper_name(of_post[2])}", POST, of_post[2]
        elif ours is not None:
            text, origin, upper = ours.text, OURS, None
            derivations.setdefault(ours, []).append(row.label)
        else:
            continue
        cells.append(Cell(row=row.run, column=BOUNDS, text=text, paper_value=upper))
        cells.append(Cell(row=row.run, column=ORIGIN, text=origin))
    if not cells:
        return [], [], []
    notes = []
    if derivations:
        reasons = "; ".join(
            f"{', '.join(rows)}: {bounds.reason}" for bounds, rows in derivations.items()
        )
        notes.append(f"Bounds from ours: our derivation, where the post has none. {reasons}.")
    columns = [Column(id=BOUNDS, header="Bounds"), Column(id=ORIGIN, header="Bounds from")]
    return columns, cells, notes


def upper_name(value: float) -> str:
    """Return an upper bound as text; √2 is written as such."""
    return "√2" if abs(value**2 - 2) < 1e-3 else f"{value:g}"
