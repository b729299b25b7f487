"""Columns of training stability: spikes and divergence, by learning rate or at a row's own."""

from collections.abc import Callable, Sequence
from statistics import fmean

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice
from difftransformer.config.spikes import SpikesConfig
from difftransformer.errors import UserError
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import (
    DIFFERENCE,
    Paper,
    Place,
    mean_cell,
    seed_values,
    share_cell,
)
from difftransformer.reporting.collect import Results, defined
from difftransformer.reporting.conditions import compared_with, span, training_note
from difftransformer.reporting.differences import paired_differences
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.measures.learning_rate import rates
from difftransformer.reporting.numbers import rate
from difftransformer.reporting.stability import GRADIENT, LOSS, Stability, stability_of

KINDS = {
    "loss_spikes": "Loss spikes",
    "gradient_spikes": "Gradient-norm spikes",
    "diverged": "Diverged seeds",
    "final_loss": "Validation loss at the end",
}
"""What is measured of every training, in the words of headings."""
LARGE = "_large"
"""Ending of the column over the rates from a row's own on."""
_PERCENT, _NATS = 2, 3

ByRate = dict[float, list[Stability]]
"""Learning rate -> one training a seed, ascending."""


def stability(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[Section]:
    """Make the sections, one a kind: rows are architectures, columns are rates.

    Raises:
        UserError: a result or a history is missing, or a row's own rate is not swept.
        DataError: a history lacks steps.
    """
    found = {row.run: by_rate(artifact, part, row, results) for row in part.rows}
    large = _large_rates(part)
    sections = []
    for kind, title in KINDS.items():
        columns = [
            Column(id=f"{kind}@{rate(one)}", header=f"lr {rate(one)}") for one in rates(part)
        ]
        cells = [
            kind_cell(Place(row.run, f"{kind}@{rate(one)}"), kind, trained)
            for row in part.rows
            for one, trained in found[row.run].items()
        ]
        if kind.endswith("spikes"):
            columns += [
                Column(id=kind + LARGE, header="large rates ↓"),
                Column(id=kind + LARGE + DIFFERENCE, header="Δ large rates"),
            ]
            over = [
                _over_rates(Place(row.run, kind + LARGE), kind, found[row.run], large[row.run])
                for row in part.rows
            ]
            cells += over + paired_differences(part.rows, [kind + LARGE], over, _PERCENT)
        rows = [Row(run=row.run, label=row.label) for row in part.rows]
        sections.append(Section(title=title, columns=columns, rows=rows, cells=cells))
    trained = [one for rows in found.values() for row in rows.values() for one in row]
    notes = [*_notes(part, trained), _budget([one.result for one in trained])]
    notes.append(f"Large rates: from {rate(min(min(large.values())))} on; their mean.")
    sections[0] = sections[0].model_copy(update={"notes": notes})
    return sections


def spikes(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section of rows at their own learning rates: columns are the kinds.

    Raises:
        UserError: a result or a history is missing.
        DataError: a history lacks steps.
    """
    config = spikes_config(part)
    found = {row.run: stability_of(results, row.run, artifact.seeds, config) for row in part.rows}
    cells = [
        kind_cell(Place(row.run, kind), kind, found[row.run]) for row in part.rows for kind in KINDS
    ]
    compared = [kind for kind in KINDS if kind != "diverged"]
    columns = [Column(id=kind, header=f"{header} ↓") for kind, header in KINDS.items()]
    columns += [
        Column(id=kind + DIFFERENCE, header=f"Δ {KINDS[kind]}", tidy_only=kind == "final_loss")
        for kind in compared
    ]
    return Section(
        title=part.title,
        columns=columns,
        rows=[Row(run=row.run, label=row.label) for row in part.rows],
        cells=cells + paired_differences(part.rows, compared, cells, _PERCENT),
        notes=_notes(part, [one for row in found.values() for one in row]),
    )


def by_rate(artifact: ArtifactSlice, part: SectionSlice, row: RowSlice, results: Results) -> ByRate:
    """Judge the trainings of a swept row.

    Raises:
        UserError: a result or a history is missing.
        DataError: a history lacks steps.
    """
    swept = sorted((one.learning_rate, one.run_id) for one in part.sweep if one.run == row.run)
    config = spikes_config(part)
    return {one: stability_of(results, run, artifact.seeds, config) for one, run in swept}


def spikes_config(part: SectionSlice) -> SpikesConfig:
    """Return the section's definition of a spike, which these measures require."""
    assert part.spikes is not None, part.title
    return part.spikes


def kind_cell(place: Place, kind: str, trained: Sequence[Stability]) -> Cell:
    """One kind of one row at one rate, over its seeds."""
    decimals = _NATS if kind == "final_loss" else _PERCENT
    values = [(one.result, kind_value(kind)(one)) for one in trained]
    seeds = seed_values(values, decimals, nothing="diverged")
    if kind == "diverged":
        return share_cell(place, seeds)
    cell = mean_cell(place, seeds, decimals, Paper(None))
    if kind == "final_loss" and cell.n < len(trained):
        text = "diverged" if not cell.n else f"{cell.text} ({len(trained) - cell.n} diverged)"
        return cell.model_copy(update={"text": text})
    return cell


def kind_value(kind: str) -> Callable[[Stability], float | None]:
    """Return what reads one kind off a training."""
    return {
        "loss_spikes": lambda one: one.spikes[LOSS],
        "gradient_spikes": lambda one: one.spikes[GRADIENT],
        "diverged": lambda one: one.diverged,
        "final_loss": lambda one: one.loss,
    }[kind]


def _over_rates(place: Place, kind: str, found: ByRate, large: Sequence[float]) -> Cell:
    """Mean over the large rates, seed by seed, with the jobs of all of them."""
    by_seed = zip(*(found[one] for one in large), strict=True)
    value = kind_value(kind)
    seeds = []
    for trained in by_seed:
        values = [value(one) for one in trained]
        assert None not in values, place
        mean = fmean(one for one in values if one is not None)
        (seed,) = seed_values([(trained[0].result, mean)], _PERCENT)
        jobs = [one.result.job_id for one in trained]
        seeds.append(seed.model_copy(update={"job_ids": jobs}))
    return mean_cell(place, seeds, _PERCENT, Paper(None))


def _large_rates(part: SectionSlice) -> dict[str, list[float]]:
    """Rates of each row from its own, which the configuration gives it, on."""
    found = {}
    for row in part.rows:
        swept = [one for one in part.sweep if one.run == row.run]
        own = next((one.learning_rate for one in swept if one.chosen), None)
        if own is None:
            raise UserError(
                f"{row.run}: the sweep has the rates {[one.learning_rate for one in swept]}, its "
                "own is none of them: add it to the grid in the scale's file"
            )
        found[row.run] = sorted(one.learning_rate for one in swept if one.learning_rate >= own)
    return found


def _budget(trained: Sequence[Result]) -> str:
    """What the trainings of a sweep share, whose rates are columns."""
    steps = sorted({defined(one, "planned_steps") for one in trained})
    sizes = sorted({defined(one, "non_embedding_parameters") for one in trained})
    return f"Training: {span(steps)} steps a run; {span(sizes)} parameters without embeddings."


def _notes(part: SectionSlice, trained: Sequence[Stability]) -> list[str]:
    config = spikes_config(part)
    rows = [row for row in part.rows if any(one.result.run == row.run for one in trained)]
    notes = [
        f"Spikes, in % of steps: a step is one if its loss, or its gradient norm before clipping, "
        f"exceeds the median of the {config.window} steps before it by more than "
        f"{config.threshold:g} robust standard deviations (1.4826 median absolute deviations). "
        "Every step that is lost to a divergence counts as a spike.",
        "A run diverges at the first step with a loss or a gradient that is not finite, or with a "
        "loss above training.divergence_loss after warm-up.",
    ]
    if rows:
        notes.append(training_note(rows, [one.result for one in trained]))
    if any(row.against for row in part.rows):
        notes.append(f"Δ: paired difference over seeds, {compared_with(part)}.")
    return notes
