"""Columns of attention sinks: what goes to the first token."""

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
from difftransformer.reporting.measures.metric_columns import MetricColumn, metric_section
from difftransformer.reporting.numbers import count

DECIMALS = 3
_SHOWN = {
    "share": "Share ↓",
    "sink_heads": "Heads that are sinks ↓",
    "weight": "Weight",
    "mass": "Sum of weights",
}


def layer_names(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[str]:
    """Metrics of the share by layer, in the order of the layers.

    Raises:
        UserError: a result is missing.
    """
    names = evaluated(artifact, part, part.rows[:1], results)[0].metrics
    return sorted(
        (name for name in names if re.fullmatch(r"share_l\d+", name)),
        key=lambda name: int(name[7:]),
    )


def sinks(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section; shares by layer are in the csv.

    Raises:
        UserError: a result is missing, or rows were measured with different settings.
    """
    found = evaluated(artifact, part, part.rows, results)
    columns = [
        MetricColumn(name, header, partial(metric, name=name), compared=name == "share")
        for name, header in _SHOWN.items()
    ]
    columns += [
        MetricColumn(name, f"Share, layer {layer}", partial(metric, name=name), hidden=True)
        for layer, name in enumerate(layer_names(artifact, part, results), start=1)
    ]
    length, first, threshold = (
        shared_setting(found, "config", name) for name in ("seq_len", "first_query", "threshold")
    )
    notes = [
        f"Attention from positions {first} to {length} to the first token of a window, whatever it "
        f"is, over {count(defined(found[0], 'tokens'))} held-out tokens. Share: absolute "
        "weight over the sum of a row's absolute weights, mean over positions, layers and heads; "
        f"equal weights give {defined(found[0], 'uniform'):.3f}. A head is a sink if its "
        f"mean share exceeds {threshold:g}. Weight and sum: absolute weights as they are, before "
        "the gate of a gated head.",
        training_note(part.rows, trainings(part.rows, artifact.seeds, results)),
    ]
    return metric_section(artifact, part, results, columns, decimals=DECIMALS, notes=notes)
