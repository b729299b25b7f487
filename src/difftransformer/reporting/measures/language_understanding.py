"""Columns of language understanding: accuracy in % by task, and the mean over tasks.

Beside the rows that were measured stand the published rows of models that this scale leaves out,
and the accuracy of guessing on the same items.
"""

from collections.abc import Sequence

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice
from difftransformer.config.language_tasks import LANGUAGE_TASKS
from difftransformer.config.pretrained import PRETRAINED_SEED
from difftransformer.config.suites.base import AVERAGE
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import (
    DIFFERENCE,
    Paper,
    Place,
    mean_cell,
    seed_values,
)
from difftransformer.reporting.collect import Results, defined, metric
from difftransformer.reporting.conditions import (
    compared_with,
    shared_setting,
    training_note,
    trainings,
)
from difftransformer.reporting.differences import paired_differences
from difftransformer.reporting.document import Cell, Column, Row, Section, SeedValue
from difftransformer.reporting.numbers import plain

DECIMALS = 1
ERROR = "_stderr"
"""Ending of the column of lm-eval's standard errors of another column."""
GUESSING = "guessing"
"""Row of the accuracy of guessing."""


def language_understanding(
    artifact: ArtifactSlice, part: SectionSlice, results: Results
) -> Section:
    """Make the section.

    Raises:
        UserError: a result is missing, or rows were asked different items.
    """
    evaluated = {row.run: evaluations(artifact, part, row, results) for row in part.rows}
    everything = [result for found in evaluated.values() for result in found]
    tasks = [*shared_setting(everything, "config", "tasks"), AVERAGE]
    ending = shots(everything)
    paper = Paper(artifact.paper)
    cells = [
        cell
        for row in part.rows
        for task in tasks
        for cell in _measured(Place(row.run, task + ending), task, evaluated[row.run], paper)
    ]
    cells += paired_differences(part.rows, [task + ending for task in tasks], cells, DECIMALS)
    published = _published(artifact, part, [task + ending for task in tasks])
    guessing = [_guessing(Place(GUESSING, task + ending), task, everything[:1]) for task in tasks]
    rows = [Row(run=row.run, label=row.label) for row in part.rows]
    return Section(
        title=part.title,
        columns=_columns(part, tasks, ending),
        rows=[*rows, *published, Row(run=GUESSING, label="Guessing")],
        cells=[*cells, *_published_cells(artifact, published), *guessing],
        notes=_notes(artifact, part, results, everything),
    )


def shots(evaluated: Sequence[Result]) -> str:
    """Ending of the columns: they carry the number of solved examples, as tables have both."""
    return f"_{shared_setting(evaluated, 'config', 'num_fewshot')}shot"


def stand_in(evaluated: Sequence[Result]) -> str | None:
    """Return what stands in for the benchmarks; None where the items are theirs."""
    return "our own few items" if shared_setting(evaluated, "config", "data") == "builtin" else None


def label_of(task: str) -> str:
    """Head of a task's column."""
    return "Avg" if task == AVERAGE else LANGUAGE_TASKS[task].label


def evaluations(
    artifact: ArtifactSlice, part: SectionSlice, row: RowSlice, results: Results
) -> list[Result]:
    """Results of a row: one for each seed, or the only one of a model from elsewhere."""
    seeds = [PRETRAINED_SEED] if row.pretrained else artifact.seeds
    return [results.evaluation(part.suites[0], row.run, seed) for seed in seeds]


def _columns(part: SectionSlice, tasks: list[str], ending: str) -> list[Column]:
    columns = [Column(id=task + ending, header=f"{label_of(task)} ↑") for task in tasks]
    columns += [
        Column(id=task + ending + ERROR, header=f"{label_of(task)} s.e.", tidy_only=True)
        for task in tasks
    ]
    if any(row.against for row in part.rows):
        columns += [
            Column(
                id=task + ending + DIFFERENCE,
                header=f"Δ {label_of(task)}",
                tidy_only=task != AVERAGE,
            )
            for task in tasks
        ]
    return columns


def _measured(place: Place, task: str, found: Sequence[Result], paper: Paper) -> list[Cell]:
    """The accuracy with lm-eval's standard error behind it, and that error by itself."""
    cell = mean_cell(place, _percent(found, task), DECIMALS, paper)
    error_place = Place(place.row, place.column + ERROR)
    error = mean_cell(error_place, _percent(found, task + ERROR), DECIMALS, Paper(None))
    assert error.value is not None, place
    text = f"{cell.text} ({plain(error.value, DECIMALS)})"
    return [cell.model_copy(update={"text": text}), error]


def _percent(found: Sequence[Result], name: str) -> list[SeedValue]:
    shares = [(result, metric(result, name)) for result in found]
    return seed_values(
        [(result, None if share is None else 100 * share) for result, share in shares], DECIMALS
    )


def _published(artifact: ArtifactSlice, part: SectionSlice, columns: list[str]) -> list[Row]:
    """Rows that are published and not measured, where they have any of these columns."""
    measured = {row.run for row in part.rows}
    rows = {} if artifact.paper is None else artifact.paper.rows
    return [
        Row(run=run, label=f"{row.label} (published)")
        for run, row in rows.items()
        if run not in measured and set(columns) & set(row.values)
    ]


def _published_cells(artifact: ArtifactSlice, rows: list[Row]) -> list[Cell]:
    if artifact.paper is None:
        return []
    return [
        Cell(
            row=row.run,
            column=column,
            text=f"[{plain(float(value), DECIMALS)}]",
            paper_value=float(value),
        )
        for row in rows
        for column, value in artifact.paper.rows[row.run].values.items()
        if value is not None
    ]


def _guessing(place: Place, task: str, one: Sequence[Result]) -> Cell:
    """The same for every row: all were asked the same items."""
    (result,) = one
    value = 100 * defined(result, f"{task}_chance")
    return Cell(
        row=place.row,
        column=place.column,
        text=plain(value, DECIMALS),
        value=value,
        n=1,
        seeds=[SeedValue(seed=result.seed, value=None, text="", job_ids=[result.job_id])],
    )


def _notes(
    artifact: ArtifactSlice, part: SectionSlice, results: Results, everything: Sequence[Result]
) -> list[str]:
    tasks = shared_setting(everything, "config", "tasks")
    examples = shared_setting(everything, "config", "num_fewshot")
    normed = [label_of(task) for task in tasks if LANGUAGE_TASKS[task].metric != "acc"]
    versions = {result.provenance.versions.get("lm-eval", "unknown") for result in everything}
    notes = [
        f"{examples} solved examples before each item, by lm-eval {', '.join(sorted(versions))}; "
        f"acc{f', and acc_norm for {_listed(normed)}' if normed else ''}. In parentheses lm-eval's "
        "standard error over items.",
        _items_note(everything, tasks),
    ]
    cut = [defined(result, f"{task}_cut") for result in everything for task in tasks]
    if any(cut):
        notes.append(
            f"Requests longer than the model's context lose their first tokens: {min(cut):.0%} to "
            f"{max(cut):.0%} of a task's requests here."
        )
    trained = [row for row in part.rows if not row.pretrained]
    if trained:
        notes.append(training_note(trained, trainings(trained, artifact.seeds, results)))
    if len(trained) < len(part.rows):
        notes.append("Models from elsewhere have one value for all seeds.")
    if any(row.against for row in part.rows):
        notes.append(f"Δ: paired difference over seeds, {compared_with(part)}.")
    return notes


def _items_note(everything: Sequence[Result], tasks: list[str]) -> str:
    data = shared_setting(everything, "config", "data")
    shared_setting(everything, "config", "limit")
    words = {
        "hub": "the benchmarks, from the Hugging Face hub at pinned revisions",
        "builtin": "our own few in the benchmarks' schemas, not the benchmarks: do not compare "
        "with published numbers",
    }
    counts = [int(defined(everything[0], f"{task}_samples")) for task in tasks]
    each = [f"{label_of(task)} {count}" for task, count in zip(tasks, counts, strict=True)]
    amount = f"{counts[0]} a task" if len(set(counts)) == 1 else ", ".join(each)
    return f"Items: {words.get(data, 'the benchmarks, from local files')}; {amount}."


def _listed(words: list[str]) -> str:
    return " and ".join(words)
