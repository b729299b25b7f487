"""Columns of attention allocation: shares of the answer and of noise by depth."""

from collections.abc import Callable

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import Results, metric
from difftransformer.reporting.conditions import evaluated, shared_setting, training_note, trainings
from difftransformer.reporting.document import Section
from difftransformer.reporting.measures.metric_columns import MetricColumn, metric_section

DECIMALS = 2
REGIONS = {
    "bos": "First token",
    "before": "Context before",
    "answer": "Answer",
    "after": "Context after",
    "query": "Question",
}
"""Regions of a prompt, whose shares make up a row of attention."""
_SHOWN = {"answer": "Answer {} ↑", "noise": "Noise {} ↓"}
_NORMALISATION = {
    "absolute": "A row of signed weights is divided by the sum of its absolute values, which is 1 "
    "for softmax; shares are of absolute weights.",
    "signed": "A row of signed weights is divided by its sum; shares keep their sign.",
}
_ANSWER = {"needle": "the whole answer needle", "value": "the value of the answer needle"}


def attention(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section: shares by depth and over all depths; the other regions are in the csv.

    Raises:
        UserError: a result is missing, or rows were measured with different settings.
    """
    found = evaluated(artifact, part, part.rows, results)

    def config(name: str) -> object:
        return shared_setting(found, "config", name)

    depths = shared_setting(found, "config", "depths")
    columns = [
        MetricColumn(f"{region}_d{depth}", header.format(f"{depth}%"), _share(f"{region}_d{depth}"))
        for region, header in _SHOWN.items()
        for depth in depths
    ]
    columns += [
        MetricColumn(region, header.format("all"), _share(region))
        for region, header in _SHOWN.items()
    ]
    columns += [
        MetricColumn(region, header, _share(region), hidden=True)
        for region, header in REGIONS.items()
        if region not in _SHOWN
    ]
    notes = [
        f"{config('samples')} prompts at each depth, {config('needles')} needles of which one is "
        f"asked for. {_NORMALISATION[str(config('normalisation'))]} Answer: "
        f"{_ANSWER[str(config('answer'))]}. Noise: the context without it and without the first "
        "token.",
        training_note(part.rows, trainings(part.rows, artifact.seeds, results)),
    ]
    return metric_section(artifact, part, results, columns, decimals=DECIMALS, notes=notes)


def _share(name: str) -> Callable[[Result], float | None]:
    def value(result: Result) -> float | None:
        return metric(result, name)

    return value
