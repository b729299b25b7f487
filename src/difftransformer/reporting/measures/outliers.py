"""Columns of activation outliers: largest magnitudes by rank, and the median."""

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
from difftransformer.reporting.measures.metric_columns import MetricColumn, metric_section
from difftransformer.reporting.numbers import count

DECIMALS = 1


def outliers(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section of one kind of activation, the one that ``part.measures`` names.

    Raises:
        UserError: a result is missing, or rows were measured with different settings.
    """
    measured = evaluated(artifact, part, part.rows, results)
    tokens = defined(measured[0], "tokens")
    error = defined(measured[0], "median_error")
    return metric_section(
        artifact,
        part,
        results,
        _columns(part.measures, shared_setting(measured, "config", "ranks")),
        decimals=DECIMALS,
        notes=[
            f"Absolute values over {count(tokens)} held-out tokens; the largest are exact, the "
            f"median is within {error:.1%}.",
            training_note(part.rows, trainings(part.rows, artifact.seeds, results)),
        ],
    )


def _columns(kind: str, ranks: list[int]) -> list[MetricColumn]:
    headers = {f"{kind}_top{rank}": f"Top-{rank} ↓" for rank in ranks}
    headers[f"{kind}_median"] = "Median"
    return [
        MetricColumn(name, header, partial(metric, name=name), compared=name == f"{kind}_top1")
        for name, header in headers.items()
    ]
