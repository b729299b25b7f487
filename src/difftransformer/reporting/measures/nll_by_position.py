"""Columns of the cumulative loss by position, and of its paired differences."""

import re
from collections.abc import Iterable

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice
from difftransformer.errors import UserError
from difftransformer.reporting.cells import (
    DIFFERENCE,
    Paper,
    Place,
    difference_cell,
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
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.numbers import count

DECIMALS = 3
WHOLE = "loss"
"""Column of the loss over whole windows: the last position, at every scale under one name."""
_COLUMN = re.compile(r"nll_p(\d+)")


def column(place: int) -> str:
    """Column, and metric, of the mean loss up to a position."""
    return f"nll_p{place}"


def places_in(names: Iterable[str]) -> list[int]:
    """Positions that metrics or published values are about, ascending."""
    return sorted(int(found[1]) for name in names if (found := _COLUMN.fullmatch(name)))


def places(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[int]:
    """Positions that all rows were measured at.

    Raises:
        UserError: a result is missing, or rows were measured at different positions.
    """
    measured = evaluated(artifact, part, part.rows, results)
    found = places_in(measured[0].metrics)
    for result in measured:
        if places_in(result.metrics) != found:
            raise UserError(
                f"{result.job_id} and {measured[0].job_id} were measured at different positions, "
                "but share a figure: rerun the older one"
            )
    return found


def nll_by_position(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section: mean loss in nats per token from the start of a document to a position.

    Raises:
        UserError: a result is missing, or rows were measured with different settings.
    """
    at = places(artifact, part, results)
    columns = [Column(id=column(place), header=f"{place} ↓") for place in at]
    columns.append(Column(id=WHOLE, header="whole window ↓", tidy_only=True))
    cells = []
    for row in part.rows:
        measured = evaluated(artifact, part, [row], results)
        for one in columns:
            values = seed_values([(result, metric(result, one.id)) for result in measured], 3)
            cells.append(mean_cell(Place(row.run, one.id), values, DECIMALS, Paper(None)))
    return Section(
        title=part.title,
        columns=columns,
        rows=[Row(run=row.run, label=row.label) for row in part.rows],
        cells=cells,
        notes=_notes(artifact, part, results),
    )


def nll_differences(part: SectionSlice, measured: Section) -> Section:
    """Make the section of paired differences, of the rows that are compared with another."""
    compared = [row for row in part.rows if row.against is not None]
    return Section(
        title=f"Paired difference, {compared_with(part)}",
        columns=[
            one.model_copy(
                update={"id": one.id + DIFFERENCE, "header": f"Δ {one.header.removesuffix(' ↓')}"}
            )
            for one in measured.columns
        ],
        rows=[Row(run=row.run, label=row.label) for row in compared],
        cells=[_difference(row, one.id, measured) for row in compared for one in measured.columns],
    )


def _difference(row: RowSlice, name: str, measured: Section) -> Cell:
    assert row.against is not None
    ours, theirs = measured.cell(row.run, name), measured.cell(row.against, name)
    assert ours is not None and theirs is not None
    return difference_cell(Place(row.run, name + DIFFERENCE), ours, theirs, DECIMALS, None)


def _notes(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[str]:
    measured = evaluated(artifact, part, part.rows, results)
    trained = trainings(part.rows, artifact.seeds, results)
    length = shared_setting(measured, "config", "length")
    documents = {defined(result, "documents") for result in measured}
    if len(documents) > 1:
        raise UserError(f"rows of '{artifact.artifact}' read different documents: rerun the older")
    theta = shared_setting(trained, "model", "rope_theta")
    context = shared_setting(trained, "training", "seq_len")
    parents = {result.run: result.settings.get("init_from") for result in trained}
    continued = ", ".join(f"{row.label} continues {parents[row.run]}" for row in part.rows)
    return [
        f"Mean cross-entropy in nats over the targets 1 to p of a document, read from its start, "
        f"then over the {count(documents.pop())} held-out documents with more than {length} "
        "tokens.",
        f"Extension to {context} tokens with rotary base {theta:g}; {continued}.",
        training_note(part.rows, trained),
    ]
