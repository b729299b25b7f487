"""Columns of the table of variants: what each costs, and what it scores, from several suites."""

from statistics import median
from typing import NamedTuple

from difftransformer.config.artifact_slices import ArtifactSlice, Fact, RowSlice, SectionSlice
from difftransformer.config.throughput import VARIANTS
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import (
    DIFFERENCE,
    Paper,
    Place,
    fact_cell,
    mean_cell,
    seed_values,
)
from difftransformer.reporting.collect import Results, metric
from difftransformer.reporting.conditions import (
    compared_with,
    shared_setting,
    training_note,
    trainings,
)
from difftransformer.reporting.differences import paired_differences
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.measures.needles import pair_name
from difftransformer.reporting.measures.throughput import Timings
from difftransformer.reporting.numbers import count, plain
from difftransformer.reporting.rounds import machine_note, one_cell, rounds_note, speed_cell

_FACTS = {
    "parameters": "Parameters",
    "ffn_dim": "FFN",
    "kv_bytes": "KV bytes a token",
    "training_flops": "Training FLOPs a token",
}
NEEDLES = "needles"
"""Column of needle accuracy, at the suite's last setting."""
SPEED_RATIO = "speed_ratio"
_SPEEDS = {"speed": "Training tokens/s ↑", SPEED_RATIO: "Speed, ratio ↑"}


class Score(NamedTuple):
    """A metric of one of the suites, as a column."""

    header: str
    suite: int
    metric: str
    decimals: int


_SCORES = {
    "valid": Score("Valid ↓", 0, "loss", 3),
    "ar_hit": Score("AR-Hit ↓", 0, "ar_hit_loss", 3),
    "attention_logits_top1": Score("Largest logit ↓", 1, "attention_logits_top1", 1),
    "hidden_states_top1": Score("Largest state ↓", 1, "hidden_states_top1", 1),
}
_COMPARED = {"valid": 3, NEEDLES: 2}


def variants(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section; each row is a run and its twin on key-value retrieval.

    Raises:
        UserError: a result is missing, or rows were measured with different settings.
    """
    cells = [cell for row in part.rows for cell in _row(artifact, part, row, results)]
    for column, decimals in _COMPARED.items():
        cells += paired_differences(part.rows, [column], cells, decimals)
    columns = [Column(id=name, header=header) for name, header in _FACTS.items()]
    columns += [Column(id=name, header=score.header) for name, score in _SCORES.items()]
    columns.insert(len(_FACTS) + 2, Column(id=NEEDLES, header="Needles ↑"))
    speeds, how = _speeds(part, results)
    if speeds:
        cells += speeds
        columns[len(_FACTS) : len(_FACTS)] = [
            Column(id=name, header=header) for name, header in _SPEEDS.items()
        ]
    columns += [
        Column(id="valid" + DIFFERENCE, header="Δ Valid"),
        Column(id=NEEDLES + DIFFERENCE, header="Δ Needles"),
    ]
    rows = [Row(run=row.run, label=row.label) for row in part.rows]
    return Section(
        title=part.title, columns=columns, rows=rows, cells=cells,
        notes=[*_notes(artifact, part, results), *how],
    )  # fmt: skip


def _row(
    artifact: ArtifactSlice, part: SectionSlice, row: RowSlice, results: Results
) -> list[Cell]:
    trained, nothing = trainings([row], artifact.seeds, results), Paper(None)
    cells = []
    for name in _FACTS:
        cell = fact_cell(Place(row.run, name), row.facts.get(name), trained, nothing)
        cells.append(cell.model_copy(update={"text": _written(row.facts.get(name))}))
    for name, score in _SCORES.items():
        found = [results.evaluation(part.suites[score.suite], row.run, s) for s in artifact.seeds]
        values = seed_values([(one, metric(one, score.metric)) for one in found], score.decimals)
        cells.append(mean_cell(Place(row.run, name), values, score.decimals, nothing))
    setting, asked = _needles(artifact, part, row, results)
    values = seed_values([(one, metric(one, f"accuracy_{setting}")) for one in asked], 2)
    return [*cells, mean_cell(Place(row.run, NEEDLES), values, 2, nothing)]


def _speeds(part: SectionSlice, results: Results) -> tuple[list[Cell], list[str]]:
    """Speeds of training and how they were timed; nothing where the scale times no variants."""
    if not part.rows[0].facts.get("timed"):
        return [], []
    timings, cells = Timings(results), []
    job, timed = timings.result.job_id, timings.config.timed()[VARIANTS]
    for row in part.rows:
        speeds = timings.speeds(timings.fastest(VARIANTS, row.run, "training"), "training")
        cells.append(speed_cell(Place(row.run, "speed"), speeds, job, Paper(None)))
        if row.against:
            ratio = median(timings.ratios(VARIANTS, row.run, row.against, "training"))
            cells.append(one_cell(Place(row.run, SPEED_RATIO), ratio, plain(ratio, 2), job))
    labels = {row.run: row.label for row in part.rows}
    others = dict.fromkeys(labels[row.against] for row in part.rows if row.against)
    return cells, [
        f"Training tokens/s: forward, loss and backward at {timed.label}, batch of "
        f"{timed.batch_size}, {rounds_note(timings.config, 'row, backend and mode')} Ratio to "
        f"{' and '.join(others)}: median of those within rounds. "
        f"{machine_note(timings.result, timings.config)}"
    ]


def _written(fact: Fact) -> str:
    assert isinstance(fact, int | float), fact
    return count(fact) if fact >= 10_000 else f"{fact:,.0f}"


def _needles(
    artifact: ArtifactSlice, part: SectionSlice, row: RowSlice, results: Results
) -> tuple[str, list[Result]]:
    assert row.retrieval is not None, row.run
    suite = part.retrieval_suites[0]
    asked = [results.evaluation(suite, row.retrieval, seed) for seed in artifact.seeds]
    return pair_name(shared_setting(asked, "config", "pairs")[-1]), asked


def _notes(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[str]:
    setting, _ = _needles(artifact, part, part.rows[0], results)
    notes = [
        "KV bytes a token: what the caches of all layers grow by, in 16 bits. Training FLOPs: by "
        "formula, forward and backward, without norms and softmax. Valid and AR-Hit: nats per "
        "token. Needles: accuracy of the row's twin that is trained on key-value retrieval, at "
        f"{setting.replace('_', ', ').upper()}. Largest: absolute values of held-out activations.",
        training_note(part.rows, trainings(part.rows, artifact.seeds, results)),
    ]
    others = [f"{row.run} for {row.paper}" for row in part.rows if row.paper not in (None, row.run)]
    if others:
        notes.append(f"At this scale other runs stand in, of other sizes: {', '.join(others)}.")
    if any(row.against for row in part.rows):
        notes.append(f"Δ: paired difference over seeds, {compared_with(part)}.")
    return notes
