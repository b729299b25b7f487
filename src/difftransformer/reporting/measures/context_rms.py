"""Columns of the context RMS by position: measured, behind a norm, and as the post assumes."""

import re
from functools import partial

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.reporting.collect import Results, defined, metric
from difftransformer.reporting.conditions import (
    evaluated,
    shared_setting,
    training_note,
    trainings,
)
from difftransformer.reporting.document import Section
from difftransformer.reporting.measures.context_bounds import with_bounds
from difftransformer.reporting.measures.metric_columns import MetricColumn, metric_section
from difftransformer.reporting.numbers import count

DECIMALS = 2
KINDS = {
    "weights": "Weights alone, as the bounds assume",
    "before": "Measured, before a headwise norm",
    "after": "Measured, what W_O gets",
}
_ENDINGS = {"_low": "5%", "_high": "95%"}
_MAGNIFICATION = {"magnification": "Magnified by ↓", "magnification_top": "at most ↓"}


def places(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[int]:
    """Positions that all rows were measured at.

    Raises:
        UserError: a result is missing, or rows were measured with different settings.
    """
    found = evaluated(artifact, part, part.rows, results)
    for name in ("seq_len", "positions", "first_position"):
        shared_setting(found, "config", name)
    names = (re.fullmatch(r"before_p(\d+)", name) for name in found[0].metrics)
    return sorted(int(match[1]) for match in names if match)


def context_rms(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[Section]:
    """Make the sections, one a kind; the middle 90% of heads and windows is in the csv.

    Raises:
        UserError: a result is missing, or rows were measured with different settings.
    """
    at = places(artifact, part, results)
    sections = []
    for kind, title in KINDS.items():
        columns = [
            MetricColumn(f"{kind}_p{n}", f"n = {n}", partial(metric, name=f"{kind}_p{n}"))
            for n in at
        ]
        columns += [
            MetricColumn(
                f"{kind}_p{n}{ending}", f"n = {n}, {words}",
                partial(metric, name=f"{kind}_p{n}{ending}"), hidden=True,
            )
            for n in at
            for ending, words in _ENDINGS.items()
        ]  # fmt: skip
        if kind == "after":
            columns += [
                MetricColumn(name, header, partial(metric, name=name))
                for name, header in _MAGNIFICATION.items()
            ]
        titled = part.model_copy(update={"title": title})
        notes = _notes(artifact, part, results) if kind == "weights" else []
        section = metric_section(artifact, titled, results, columns, decimals=DECIMALS, notes=notes)
        sections.append(with_bounds(artifact, titled, section) if kind == "weights" else section)
    return sections


def _notes(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[str]:
    found = evaluated(artifact, part, part.rows, results)
    tokens = defined(found[0], "tokens")
    return [
        "Root mean square of a head's output before W_O at position n, mean over windows, layers "
        f"and heads, over {count(tokens)} held-out tokens. The bounds take uncorrelated values "
        "with an RMS of 1: the first section has the Euclidean norm of a row of weights, which is "
        "the context RMS of such values; a gate behind the weighted sum is in the bounds, not in "
        "the norm. Measured: in units of the RMS of the layer's values up to n, which are neither "
        "uncorrelated nor of one size, so the bounds need not hold.",
        "Magnified by: RMS of what W_O gets over RMS before the headwise norm, at the last n.",
        training_note(part.rows, trainings(part.rows, artifact.seeds, results)),
    ]
