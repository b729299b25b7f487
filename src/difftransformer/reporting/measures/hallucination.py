"""Columns of contextual hallucination: what each judge finds free of it, and how judges agree."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.config.hallucination_sets import HALLUCINATION_SETS, TASKS
from difftransformer.config.judges import judged_suite
from difftransformer.config.suites.hallucination import Hallucination
from difftransformer.evaluation.judges.base import JUDGEMENTS, Judgement, read_judgements
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import Paper, Place, mean_cell
from difftransformer.reporting.collect import Results, defined, metric
from difftransformer.reporting.conditions import (
    evaluated,
    shared_setting,
    span,
    training_note,
    trainings,
)
from difftransformer.reporting.document import Cell, Column, Row, Section, SeedValue
from difftransformer.reporting.measures.metric_columns import MetricColumn, metric_section
from difftransformer.reporting.numbers import plain
from difftransformer.reporting.statistics import agreement, cohen_kappa

DECIMALS = 2
_AVERAGES = {f"average_{task}": f"{name}, mean" for task, name in TASKS.items()}
_PAIR_METRICS: Mapping[str, Callable[[Sequence[tuple[bool, bool]]], float | None]] = {
    "agreement": agreement,
    "kappa": cohen_kappa,
}


def hallucination(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[Section]:
    """Make a section for each judge, one of what only the paper has, and one of agreement.

    Raises:
        UserError: a result is missing, or rows were asked or judged differently.
    """
    first, *others = part.judges
    suite = suite_of(artifact, part, results)
    sections = [_judged(artifact, part, results, first, suite, "")]
    foreign = [name for name in HALLUCINATION_SETS if name not in suite.set_tasks]
    if foreign:
        sections.append(_published(artifact, part, foreign))
    sections += [_judged(artifact, part, results, one, suite, f"_{one}") for one in others]
    sections += [_agreement(artifact, part, results, first, one, suite) for one in others]
    return sections


def suite_of(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Hallucination:
    """Return the settings that all rows were asked with.

    Raises:
        UserError: a result is missing, or they differ.
    """
    everything = [
        results.judgement(part.suites[0], judge, row.run, seed)
        for judge in part.judges
        for row in part.rows
        for seed in artifact.seeds
    ]
    config: dict[str, Any] = shared_setting(everything, "config")
    return Hallucination.model_validate(config)


def judged_part(part: SectionSlice, judge: str) -> SectionSlice:
    """Return the section as one that reads the judge's results instead of the suite's own."""
    return part.model_copy(update={"suites": [judged_suite(part.suites[0], judge)]})


def set_label(name: str) -> str:
    """Head of a set's column."""
    if name in HALLUCINATION_SETS:
        return HALLUCINATION_SETS[name].label
    task, _, number = name.partition("_n")
    return f"{task.capitalize()}, N = {number}"


def share(name: str) -> Callable[[Result], float | None]:
    """Share of a set's judged answers that are free of hallucination; None for an absent set."""

    def value(result: Result) -> float | None:
        found = result.metrics.get(f"free_{name}")
        return None if found is None else float(found)

    return value


def _judged(
    artifact: ArtifactSlice,
    part: SectionSlice,
    results: Results,
    judge: str,
    suite: Hallucination,
    ending: str,
) -> Section:
    reading = judged_part(part, judge).model_copy(
        update={"title": f"{part.title}, judged by {_judge_name(judge, suite)}"}
    )
    columns = [
        MetricColumn(name + ending, f"{set_label(name)} ↑", share(name)) for name in suite.set_tasks
    ]
    columns += [
        MetricColumn(name + ending, f"{header} ↑", _number(name), compared=True)
        for name, header in (_AVERAGES | {"average": "All, mean"}).items()
    ]
    columns += [
        MetricColumn(cause + ending, cause, _of_judged(cause), hidden=True)
        for cause in ("contradicted", "invented")
    ]
    columns.append(MetricColumn("unjudged" + ending, "unjudged", _number("unjudged"), hidden=True))
    found = evaluated(artifact, reading, part.rows, results)
    notes = _notes(suite, judge, found)
    if not ending:
        notes.append(training_note(part.rows, trainings(part.rows, artifact.seeds, results)))
    return metric_section(artifact, reading, results, columns, decimals=DECIMALS, notes=notes)


def _number(name: str) -> Callable[[Result], float | None]:
    def value(result: Result) -> float | None:
        return metric(result, name)

    return value


def _of_judged(cause: str) -> Callable[[Result], float | None]:
    def value(result: Result) -> float | None:
        judged = _total("judged", result)
        return _total(cause, result) / judged if judged else None

    return value


def _total(kind: str, result: Result) -> float:
    """Sum of a count over the sets."""
    return sum(
        float(value or 0) for name, value in result.metrics.items() if name.startswith(f"{kind}_")
    )


def _published(artifact: ArtifactSlice, part: SectionSlice, names: list[str]) -> Section:
    """The paper's sets where the scale has none of their documents: nothing of ours."""
    return Section(
        title="The paper's sets",
        columns=[Column(id=name, header=f"{set_label(name)} ↑") for name in names],
        rows=[Row(run=row.run, label=row.label) for row in part.rows],
        cells=[
            mean_cell(Place(row.run, name), [], DECIMALS, Paper(artifact.paper))
            for row in part.rows
            for name in names
        ],
        notes=[
            f"Not measured at scale {artifact.scale}: its rows are models of the recall corpus, "
            "which read no English. Published values were judged by GPT-4o."
        ],
    )


def _agreement(
    artifact: ArtifactSlice,
    part: SectionSlice,
    results: Results,
    first: str,
    second: str,
    suite: Hallucination,
) -> Section:
    """Raw agreement and Cohen's kappa, seed by seed, over the answers that both judged."""
    names = {"": "all sets"} | {f"_{name}": set_label(name) for name in suite.set_tasks}
    cells: list[Cell] = []
    for row in part.rows:
        pairs = {
            seed: _pairs(part, results, (first, second), row.run, seed) for seed in artifact.seeds
        }
        for ending in names:
            chosen = {
                seed: [pair for name, pair in both if ending in ("", f"_{name}")]
                for seed, both in pairs.items()
            }
            cells += [
                mean_cell(
                    Place(row.run, label + ending),
                    [
                        _seed(part, results, (first, second), row.run, seed, measure, both)
                        for seed, both in chosen.items()
                    ],
                    DECIMALS,
                    Paper(None),
                )
                for label, measure in _PAIR_METRICS.items()
            ]
    headers = {"agreement": "Same verdict", "kappa": "Cohen's κ"}
    return Section(
        title=f"Agreement of {_judge_name(first, suite)} and {_judge_name(second, suite)}",
        columns=[
            Column(id=label + ending, header=f"{header}, {name}", tidy_only=bool(ending))
            for ending, name in names.items()
            for label, header in headers.items()
        ],
        rows=[Row(run=row.run, label=row.label) for row in part.rows],
        cells=cells,
        notes=[
            "Over the answers that both judged. κ is agreement beyond chance (Cohen 1960); n/a "
            "where both judges always say the same."
        ],
    )


def _pairs(
    part: SectionSlice, results: Results, judges: tuple[str, str], run: str, seed: int
) -> list[tuple[str, tuple[bool, bool]]]:
    """Set and both verdicts of every answer that both judged."""
    one, two = (_by_answer(part, results, judge, run, seed) for judge in judges)
    return [
        (key[0], (mine.free, theirs.free))
        for key, mine in one.items()
        if (theirs := two.get(key)) is not None
        and mine.free is not None
        and theirs.free is not None
    ]


def _by_answer(
    part: SectionSlice, results: Results, judge: str, run: str, seed: int
) -> dict[tuple[str, int], Judgement]:
    path = results.detail(judged_suite(part.suites[0], judge), run, seed, JUDGEMENTS)
    return {(found.set, found.index): found for found in read_judgements(path)}


def _seed(
    part: SectionSlice,
    results: Results,
    judges: tuple[str, str],
    run: str,
    seed: int,
    measure: Callable[[Sequence[tuple[bool, bool]]], float | None],
    pairs: Sequence[tuple[bool, bool]],
) -> SeedValue:
    value = measure(pairs) if pairs else None
    return SeedValue(
        seed=seed,
        value=value,
        text="n/a" if value is None else f"{plain(value, DECIMALS)} of {len(pairs)}",
        job_ids=[results.judgement(part.suites[0], one, run, seed).job_id for one in judges],
    )


def _judge_name(judge: str, suite: Hallucination) -> str:
    if judge == "endpoint":
        return "a language model"
    return "the facts themselves" if suite.format == "recall" else "words alone"


def _notes(suite: Hallucination, judge: str, found: Sequence[Result]) -> list[str]:
    settings = shared_setting(found, "judge")
    unjudged = sorted(defined(result, "unjudged") for result in found)
    outputs = span(sorted(_total("judged", one) + _total("unjudged", one) for one in found))
    notes = [
        f"Share of {suite.samples} outputs a set that the judge finds free of hallucination. "
        f"{_ABOUT[suite.format]}",
        f"Judge: {_judge_note(judge, suite, settings)}; of {outputs} outputs of a run "
        f"{span(unjudged)} are unjudged and count nowhere else.",
    ]
    absent = [
        set_label(name)
        for name in suite.set_tasks
        if any(result.metrics.get(f"free_{name}") is None for result in found)
    ]
    if absent:
        notes.append(f"n/a, {', '.join(absent)}: no items in {suite.data}, or none was judged.")
    return notes


_ABOUT = {
    "recall": "Sets are ours, not the paper's: rows of the recall corpus with N facts, a key and "
    "its value. An answer states the value of a given key; a summary begins with a given "
    "key, too, and goes on freely with keys of the model's own choice and their values.",
    "text": "Outputs are greedy; a document longer than the model's context loses its end, and the "
    "judge sees what the model was given.",
}


def _judge_note(judge: str, suite: Hallucination, settings: Mapping[str, Any]) -> str:
    if judge == "endpoint":
        return f"{settings['model']} with prompt {settings['prompt']} of ours"
    if suite.format == "recall":
        return "lexical, here the exact truth: every stated pair must stand in the document"
    return (
        "lexical: numbers, names and words must occur in the document, a summary may have "
        f"{1 - settings['content_share']:.0%} other words; true paraphrases count as hallucinated"
    )
