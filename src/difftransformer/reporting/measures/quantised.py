"""Columns of scores by bits, of the rounding that a section is about."""

from functools import partial
from typing import Any

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.config.paper_values import PaperTable
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import Results, metric
from difftransformer.reporting.conditions import (
    evaluated,
    shared_setting,
    training_note,
    trainings,
)
from difftransformer.reporting.document import Section
from difftransformer.reporting.measures.metric_columns import MetricColumn, metric_section
from difftransformer.reporting.numbers import plain

DECIMALS = 3
WHAT = {
    "quantised_logits": "attention_logits",
    "quantised_weights": "weights",
    "quantised_kv_cache": "kv_cache",
}
"""Measures of a section -> what its suite rounds."""
_PUBLISHED = "hellaswag_0shot"
_GROUPS = {
    "tensor": {
        "attention_logits": "all logits of a call",
        "weights": "a matrix",
        "kv_cache": "all keys, or values, stored in one call",
    },
    "head": {
        "attention_logits": "the logits of one sequence and softmax map",
        "kv_cache": "the keys, or values, of one sequence and head",
    },
    "row": {
        "attention_logits": "the logits of one query",
        "weights": "the weights of one output",
        "kv_cache": "one position of a head",
    },
}


def bits_of(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[int]:
    """Widths that all rows were measured at, descending.

    Raises:
        UserError: a result is missing, or rows were measured with different settings.
    """
    measured = evaluated(artifact, part, part.rows, results)
    return sorted(shared_setting(measured, "config", "bits"), reverse=True)


def column(part: SectionSlice, bits: int | None) -> str:
    """Column of a score; None is nothing rounded."""
    width = "unquantised" if bits is None else f"b{bits}"
    return f"{part.suites[0]}_{WHAT[part.measures]}_{width}"


def quantised(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section of one kind of rounding, the one that ``part.measures`` names.

    Raises:
        UserError: a result is missing, or rows were measured with different settings.
    """
    measured = evaluated(artifact, part, part.rows, results)
    what, widths = WHAT[part.measures], bits_of(artifact, part, results)
    arrow = "↑" if part.better == "higher" else "↓"
    names: dict[int | None, str] = {None: "score_unquantised"}
    names |= {bits: f"score_{what}_b{bits}" for bits in widths}
    columns = [
        MetricColumn(
            column(part, bits),
            f"{'exact' if bits is None else f'{bits} bits'} {arrow}",
            partial(metric, name=name),
        )
        for bits, name in names.items()
    ]
    change = partial(_change, names[widths[-1]], names[widths[0]])
    name = column(part, None).replace("unquantised", "change")
    columns.append(MetricColumn(name, f"{widths[-1]} − {widths[0]} bits", change, compared=True))
    return metric_section(
        artifact.model_copy(update={"paper": _comparable(artifact.paper, measured)}),
        part,
        results,
        columns,
        decimals=DECIMALS,
        notes=[
            _score_note(measured, what),
            *_paper_note(artifact.paper, measured),
            training_note(part.rows, trainings(part.rows, artifact.seeds, results)),
        ],
    )


def score_name(measured: list[Result]) -> str:
    """Say in words what the score is."""
    score = _setting(measured, "score")
    if score == "loss":
        return "validation loss, nats"
    if score.startswith("accuracy_n"):
        return f"retrieval accuracy, N = {score.removeprefix('accuracy_n')}"
    return f"{score}, share right"


def chance_of(measured: list[Result]) -> float | None:
    """Score of guessing, the same for all; None where there is none."""
    return metric(measured[0], "chance") if _setting(measured, "chance") is not None else None


def _change(fewest: str, most: str, result: Result) -> float | None:
    low, high = metric(result, fewest), metric(result, most)
    return None if low is None or high is None else low - high


def _comparable(paper: PaperTable | None, measured: list[Result]) -> PaperTable | None:
    """The published numbers, where ours answer the same questions."""
    return paper if _setting(measured, "measured") == _PUBLISHED else None


def _paper_note(paper: PaperTable | None, measured: list[Result]) -> list[str]:
    if paper is None or _comparable(paper, measured) or _setting(measured, "chance") is None:
        return []
    return ["The paper's score, HellaSwag, is beyond models of this scale: its curves are drawn."]


def _score_note(measured: list[Result], what: str) -> str:
    group = _GROUPS[_setting(measured, "granularity")[what]][what]
    chance = chance_of(measured)
    guessing = "" if chance is None else f"; guessing gives {plain(chance, 2)}"
    return f"Score: {score_name(measured)}{guessing}. One scale for {group}."


def _setting(measured: list[Result], name: str) -> Any:
    return shared_setting(measured, "config", name)
