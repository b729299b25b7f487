"""Between which values a mechanism can put the context RMS: as the DIFF V2 post says, else ours.

All under the post's assumption of uncorrelated values with an RMS of 1, where the context RMS is
the Euclidean norm of a row of weights.
"""

from typing import NamedTuple

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice
from difftransformer.reporting.cells import Paper
from difftransformer.reporting.document import Cell, Column, Section
from difftransformer.reporting.numbers import plain

BOUNDS, ORIGIN = "bounds", "bounds_from"
POST, OURS = "the post", "ours"


class Derived(NamedTuple):
    """Bounds that the post does not print."""

    text: str
    reason: str


_TWO_MAPS = Derived(
    "|1 − λ|/√n to √(1 + λ²)",
    "a row sums to 1 − λ, so equal weights make its norm smallest, and two maps on one token each "
    "make it largest; λ ≥ 0 is learned and has no bound",
)
DERIVED = {
    ("diff_v1", None): _TWO_MAPS,
    ("shared_diff", None): _TWO_MAPS,
    ("diff_v2", "none"): Derived("0 to √2", "V2's at a factor of 1, where equal maps cancel"),
    ("diff_v2", "raw"): Derived(
        "0 to ∞",
        "equal maps cancel at λ = 1; that it is unbounded from above is the post's",
    ),
    ("dint", None): Derived(
        "1/√n to √((1 + λ)² + λ²)",
        "a row sums to 1, so that equal weights make its norm smallest, as in softmax; λ ≥ 0",
    ),
    ("tda", None): Derived(
        "0 to √n max(0, 1 − τ_n)^p",
        "each of n weights has at most the size (1 − τ_n)^p, and none need exceed the threshold",
    ),
}
"""By variant and `lambda_form`, for those without an entry in paper_values.yaml."""


def published(artifact: ArtifactSlice, run: str) -> tuple[float, float, float] | None:
    """Published bounds of a row: a lower one, one that is divided by √n, and the upper one."""
    paper = Paper(artifact.paper)
    found = [paper.number(run, name) for name in ("lower", "lower_by_root_n", "upper")]
    if found[2] is None:
        return None
    return found[0] or 0.0, found[1] or 0.0, found[2]


def derived(row: RowSlice) -> Derived | None:
    """Bounds that we derived for a row's mechanism."""
    form = row.facts.get("lambda_form")
    return DERIVED.get((str(row.facts.get("variant")), None if form is None else str(form)))


def with_bounds(artifact: ArtifactSlice, part: SectionSlice, section: Section) -> Section:
    """Add the bounds of every row that has some, and who says so."""
    cells = []
    for row in part.rows:
        known, own = published(artifact, row.run), derived(row)
        if known is not None:
            low = "1/√n" if known[1] else plain(known[0], 0)
            text, origin = f"{low} to {upper_name(known[2])}", POST
        elif own is not None:
            text, origin = own.text, OURS
        else:
            continue
        upper = None if known is None else known[2]
        cells.append(Cell(row=row.run, column=BOUNDS, text=text, paper_value=upper))
        cells.append(Cell(row=row.run, column=ORIGIN, text=origin))
    if not cells:
        return section
    columns = [Column(id=BOUNDS, header="Bounds"), Column(id=ORIGIN, header="Bounds from")]
    return section.model_copy(
        update={
            "columns": [*section.columns, *columns],
            "cells": [*section.cells, *cells],
            "notes": [*section.notes, *_reasons(artifact, part)],
        }
    )


def upper_name(value: float) -> str:
    """Write an upper bound, √2 as such."""
    return "√2" if abs(value**2 - 2) < 1e-3 else f"{value:g}"


def _reasons(artifact: ArtifactSlice, part: SectionSlice) -> list[str]:
    shown: dict[Derived, list[str]] = {}
    for row in part.rows:
        own = derived(row)
        if own is not None and published(artifact, row.run) is None:
            shown.setdefault(own, []).append(row.label)
    if not shown:
        return []
    listed = "; ".join(f"{', '.join(rows)}: {own.reason}" for own, rows in shown.items())
    return [f"Bounds from ours: our derivation, where the post prints none. {listed}."]
