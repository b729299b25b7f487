"""Contextual hallucination as columns: what each judge finds free of it, and how judges agree."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from difftransformer.config.evaluation import Options
from difftransformer.evaluations.hallucination.answers import JUDGMENTS, read_judgments
from difftransformer.evaluations.hallucination.figure import asked, figure, judged_view, share
from difftransformer.evaluations.hallucination.settings import (
    HALLUCINATION_SETS,
    TASKS,
    Suite,
    average_metric,
    set_label,
    set_metric,
)
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import UNDEFINED, Paper, Place, mean_cell
from difftransformer.reporting.collect import defined
from difftransformer.reporting.conditions import shared_setting, span
from difftransformer.reporting.document import Cell, Column, Section, SeedValue
from difftransformer.reporting.numbers import plain
from difftransformer.reporting.sections import Metric, metric_section, section_of
from difftransformer.reporting.view import View

__all__ = ["figure", "section"]

DECIMALS = 2
_AVERAGES = {average_metric(task): f"{name}, mean" for task, name in TASKS.items()}
Pairs = Sequence[tuple[bool, bool]]
"""Verdicts of two judges on the same answers."""


def section(view: View[Options]) -> list[Section]:
    """Make a section for each judge, one of what only the paper has, and one of agreement."""
    first, *others = view.part.judges
    suite = asked(view)
    sections = [_judged(view, first, suite, "", [view.training_note()])]
    foreign = [name for name in HALLUCINATION_SETS if name not in suite.set_tasks]
    if foreign:
        sections.append(_published(view, foreign, suite))
    sections += [_judged(view, one, suite, f"_{one}", []) for one in others]
    sections += [_agreement(view, (first, one), suite) for one in others]
    return sections


def _judged(
    view: View[Options], judge: str, suite: Suite, ending: str, notes: Sequence[str]
) -> Section:
    title = f"{view.title}, judged by {_judge_name(judge, suite)}"
    reading = judged_view(view, judge).having(title=title)
    metrics = [
        Metric(name + ending, f"{set_label(name)} ↑", set_metric("free", name))
        for name in suite.set_tasks
    ]
    metrics += [
        Metric(name + ending, f"{header} ↑", name, compared=True)
        for name, header in (_AVERAGES | {"average": "All, mean"}).items()
    ]
    metrics += [
        Metric(cause + ending, cause, _of_judged(cause, suite), hidden=True)
        for cause in ("contradicted", "invented")
    ]
    metrics.append(Metric("unjudged" + ending, "unjudged", "unjudged", hidden=True))
    notes = [*_notes(suite, judge, reading.evaluated()), *notes]
    return metric_section(reading, metrics, decimals=DECIMALS, notes=notes)


def _of_judged(cause: str, suite: Suite) -> Callable[[Result], float | None]:
    def value(result: Result) -> float | None:
        judged = _total("judged", suite, result)
        return _total(cause, suite, result) / judged if judged else None

    return value


def _total(kind: str, suite: Suite, result: Result) -> float:
    """Sum of a count over the sets."""
    counts = (result.metrics.get(set_metric(kind, name)) for name in suite.set_tasks)
    return sum(float(count or 0) for count in counts)


def _published(view: View[Options], names: list[str], suite: Suite) -> Section:
    """The paper's sets that are not asked: nothing of ours."""
    cells = [
        mean_cell(Place(row.run, name), [], DECIMALS, view.paper)
        for row in view.rows
        for name in names
    ]
    columns = [Column(id=name, header=f"{set_label(name)} ↑") for name in names]
    note = f"Not asked at scale {view.artifact.scale}. Published values were judged by GPT-4o."
    return section_of(view.having(title="The paper's sets"), columns, cells, [note])


def _agreement(view: View[Options], judges: tuple[str, str], suite: Suite) -> Section:
    """Raw agreement and Cohen's kappa, seed by seed, over the answers that both judged."""
    names = {"": "all sets"} | {f"_{name}": set_label(name) for name in suite.set_tasks}
    measures: Mapping[str, tuple[str, Callable[[Pairs], float | None]]] = {
        "agreement": ("Same verdict", agreement),
        "kappa": ("Cohen's κ", cohen_kappa),
    }
    cells: list[Cell] = []
    for row in view.rows:
        by_seed = {seed: _pairs(view, judges, row.run, seed) for seed in view.seeds}
        for ending, (label, (_, measure)) in product(names, measures.items()):
            seeds = []
            for seed, (jobs, found) in by_seed.items():
                pairs = [pair for name, pair in found if ending in ("", f"_{name}")]
                value = measure(pairs) if pairs else None
                said = UNDEFINED if value is None else f"{plain(value, DECIMALS)} of {len(pairs)}"
                seeds.append(SeedValue(seed=seed, value=value, text=said, job_ids=jobs))
            cells.append(mean_cell(Place(row.run, label + ending), seeds, DECIMALS, Paper(None)))
    columns = [
        Column(id=label + ending, header=f"{header}, {name}", tidy_only=bool(ending))
        for ending, name in names.items()
        for label, (header, _) in measures.items()
    ]
    note = (
        "Over the answers that both judged. κ is agreement beyond chance (Cohen 1960); n/a "
        "where both judges always say the same."
    )
    one, two = (_judge_name(judge, suite) for judge in judges)
    return section_of(view.having(title=f"Agreement of {one} and {two}"), columns, cells, [note])


def _pairs(
    view: View[Options], judges: tuple[str, str], run: str, seed: int
) -> tuple[list[str], list[tuple[str, tuple[bool, bool]]]]:
    """Jobs of two judges, and the set and both verdicts of every answer that both judged."""
    readings = [judged_view(view, judge) for judge in judges]
    one, two = (
        {
            (found.set, found.index): found.free
            for found in read_judgments(reading.detail(run, seed, JUDGMENTS))
        }
        for reading in readings
    )
    jobs = [view.results.judgment(view.part.suites[0], judge, run, seed).job_id for judge in judges]
    return jobs, [
        (key[0], (mine, theirs))
        for key, mine in one.items()
        if mine is not None and (theirs := two.get(key)) is not None
    ]


def agreement(pairs: Pairs) -> float:
    """Share of pairs whose two verdicts are the same; at least one pair."""
    return sum(one == two for one, two in pairs) / len(pairs)


def cohen_kappa(pairs: Pairs) -> float | None:
    """Agreement beyond what both judges' shares of yes give by chance (Cohen 1960).

    Returns:
        1 for full agreement, 0 for that of chance; None where chance alone agrees fully, since
        both judges always say the same.
    """
    n = len(pairs)
    first, second = (sum(pair[place] for pair in pairs) / n for place in (0, 1))
    chance = first * second + (1 - first) * (1 - second)
    return None if chance == 1 else (agreement(pairs) - chance) / (1 - chance)


def _judge_name(judge: str, suite: Suite) -> str:
    if judge == "endpoint":
        return "a language model"
    return "the facts themselves" if suite.format == "recall" else "words alone"


def _notes(suite: Suite, judge: str, found: Sequence[Result]) -> list[str]:
    settings = shared_setting(found, "judge")
    unjudged = [defined(result, "unjudged") for result in found]
    outputs = [_total("judged", suite, one) + _total("unjudged", suite, one) for one in found]
    notes = [
        f"Share of {suite.samples} outputs a set that the judge finds free of hallucination. "
        f"{_ABOUT[suite.format]}",
        f"Judge: {_judge_note(judge, suite, settings)}; of {span(outputs)} outputs of a run "
        f"{span(unjudged)} are unjudged and count nowhere else.",
    ]
    absent = [
        set_label(name)
        for name in suite.set_tasks
        if any(share(name)(result) is None for result in found)
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


def _judge_note(judge: str, suite: Suite, settings: Mapping[str, Any]) -> str:
    if judge == "endpoint":
        return f"{settings['model']} with prompt {settings['prompt']} of ours"
    if suite.format == "recall":
        return "lexical, here the exact truth: every stated pair must stand in the document"
    return (
        "lexical: numbers, names and words must occur in the document, a summary may have "
        f"{1 - settings['content_share']:.0%} other words; true paraphrases count as hallucinated"
    )
