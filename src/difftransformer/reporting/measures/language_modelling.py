"""Columns of language modelling: what the model is, validation loss, AR-Hit and Others."""

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice
from difftransformer.reporting.cells import (
    DIFFERENCE,
    FACTS,
    Paper,
    Place,
    fact_cell,
    mean_cell,
    seed_values,
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
from difftransformer.reporting.numbers import count

LOSSES = {
    "valid": ("Valid ↓", "loss"),
    "ar_hit": ("AR-Hit ↓", "ar_hit_loss"),
    "others": ("Others ↓", "others_loss"),
}
DECIMALS = 3


def language_modelling(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section: losses in nats per token, and paired differences to the row compared with.

    Raises:
        UserError: a result is missing, or rows were measured with different settings.
    """
    compared = any(row.against for row in part.rows)
    columns = [Column(id=key, header=header) for key, header in FACTS.items()]
    columns += [Column(id=key, header=header) for key, (header, _) in LOSSES.items()]
    if compared:
        columns += [
            Column(id=key + DIFFERENCE, header=f"Δ {LOSSES[key][0]}", tidy_only=key != "valid")
            for key in LOSSES
        ]
    paper = Paper(artifact.paper)
    cells = [cell for row in part.rows for cell in _measured(artifact, part, row, results, paper)]
    cells += paired_differences(part.rows, list(LOSSES), cells, DECIMALS)
    return Section(
        title=part.title,
        columns=columns,
        rows=[Row(run=row.run, label=row.label) for row in part.rows],
        cells=cells,
        notes=_notes(artifact, part, results),
    )


def _measured(
    artifact: ArtifactSlice, part: SectionSlice, row: RowSlice, results: Results, paper: Paper
) -> list[Cell]:
    trained = trainings([row], artifact.seeds, results)
    cells = [fact_cell(Place(row.run, key), row.facts.get(key), trained, paper) for key in FACTS]
    measured = evaluated(artifact, part, [row], results)
    for key, (_, name) in LOSSES.items():
        found = [(result, metric(result, name)) for result in measured]
        cells.append(mean_cell(Place(row.run, key), seed_values(found, DECIMALS), DECIMALS, paper))
    return cells


def _notes(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[str]:
    measured = evaluated(artifact, part, part.rows, results)
    n = shared_setting(measured, "config", "n")
    cut_off = shared_setting(measured, "config", "max_count")
    share = defined(measured[0], "ar_hit_share")
    tokens = defined(measured[0], "tokens")
    notes = [
        f"AR-Hit: last tokens of n-grams with n = {n} that stand earlier in the context and at "
        f"most {cut_off} times in the training data, {share:.1%} of {count(tokens)} held-out "
        "tokens; Others: the rest.",
        training_note(part.rows, trainings(part.rows, artifact.seeds, results)),
    ]
    if any(row.against for row in part.rows):
        notes.append(f"Δ: paired difference over seeds, {compared_with(part)}.")
    return notes
