"""Columns of key-value retrieval: share of seeds that bind, steps to bind, accuracy by N."""

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice
from difftransformer.reporting.cells import (
    DIFFERENCE,
    FACTS,
    Paper,
    Place,
    censored_cells,
    fact_cell,
    mean_cell,
    seed_values,
    share_cell,
)
from difftransformer.reporting.collect import Results, defined, metric
from difftransformer.reporting.conditions import (
    compared_with,
    evaluated,
    shared_setting,
    training_note,
    trainings,
)
from difftransformer.reporting.differences import paired_differences
from difftransformer.reporting.document import Cell, Column, Row, Section

DECIMALS = 2


def accuracy(needles: int) -> str:
    """Column, and metric, of the accuracy at N pairs."""
    return f"accuracy_n{needles}"


def recall(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section; accuracies are shares of right answers, steps are optimiser steps.

    Raises:
        UserError: a result is missing, or rows were measured with different settings.
    """
    columns = [Column(id=key, header=header) for key, header in FACTS.items()]
    columns.append(Column(id="bound", header="Seeds that bind ↑"))
    columns.append(Column(id="steps_to_bind", header="Steps to bind ↓"))
    columns += [
        Column(id=f"steps_to_bind_{key}", header=key, tidy_only=True)
        for key in ("min", "max", "censored")
    ]
    columns += [Column(id=accuracy(n), header=f"N = {n} ↑") for n in part.needles]
    if any(row.against for row in part.rows):
        columns += [
            Column(id=accuracy(n) + DIFFERENCE, header=f"Δ N = {n}", tidy_only=True)
            for n in part.needles
        ]
    cells = [cell for row in part.rows for cell in _measured(artifact, part, row, results)]
    return Section(
        title=part.title,
        columns=columns,
        rows=[Row(run=row.run, label=row.label) for row in part.rows],
        cells=cells
        + paired_differences(part.rows, [accuracy(n) for n in part.needles], cells, DECIMALS),
        notes=_notes(artifact, part, results),
    )


def _measured(
    artifact: ArtifactSlice, part: SectionSlice, row: RowSlice, results: Results
) -> list[Cell]:
    paper = Paper(artifact.paper)
    trained = trainings([row], artifact.seeds, results)
    cells = [fact_cell(Place(row.run, key), row.facts.get(key), trained, paper) for key in FACTS]
    bound = [(result, metric(result, "bound")) for result in trained]
    steps = [(result, metric(result, "steps_to_bind")) for result in trained]
    budget = max(defined(result, "steps") for result in trained)
    cells.append(share_cell(Place(row.run, "bound"), seed_values(bound, 0)))
    cells += censored_cells(
        Place(row.run, "steps_to_bind"), seed_values(steps, 0, f"> {budget:.0f}"), budget
    )
    measured = evaluated(artifact, part, [row], results)
    for needles in part.needles:
        found = [(result, metric(result, accuracy(needles))) for result in measured]
        place = Place(row.run, accuracy(needles))
        cells.append(mean_cell(place, seed_values(found, DECIMALS), DECIMALS, paper))
    return cells


def _notes(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[str]:
    trained = trainings(part.rows, artifact.seeds, results)
    measured = evaluated(artifact, part, part.rows, results)
    probe = shared_setting(trained, "training", "probe")
    steps = max(defined(result, "steps") for result in trained)
    queries = shared_setting(measured, "config", "queries")
    samples = shared_setting(measured, "config", "samples")
    notes = [
        f"A seed binds at the first probe with an accuracy of at least {probe['bind_threshold']} "
        f"at N = {probe['bind_needles']} pairs; probes are {probe['every']} steps apart. Seeds "
        f"that do not bind in {steps:.0f} steps are censored. Share: Wilson's 95% interval. Steps: "
        "median (smallest to largest of those that bind).",
        f"Accuracy: share of right answers among the whole vocabulary, {queries} queries in each "
        f"of {samples} rows for every N; guessing among the values of a row gives 1/N.",
        training_note(part.rows, trained),
    ]
    if any(row.against for row in part.rows):
        notes.append(f"The csv also has paired differences of accuracy: {compared_with(part)}.")
    return notes
