"""Columns of multi-needle retrieval: accuracy by setting [N, R], by depth and by length."""

from collections.abc import Callable, Sequence
from typing import Any

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.errors import UserError
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import Results, defined
from difftransformer.reporting.conditions import evaluated, shared_setting, training_note, trainings
from difftransformer.reporting.document import Section
from difftransformer.reporting.measures.metric_columns import MetricColumn, metric_section
from difftransformer.reporting.numbers import plain
from difftransformer.reporting.statistics import wilson_interval

DECIMALS = 2
WILSON = (
    "A cell opens to its seeds, each with Wilson's 95% interval of its answers, which takes them "
    "as independent."
)


def pair_name(pair: Sequence[int]) -> str:
    """Column of a setting [N, R], such as n4_r2."""
    return f"n{pair[0]}_r{pair[1]}"


def needles(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section of accuracy by setting; depths have columns in the csv.

    Raises:
        UserError: a result is missing, or rows were asked different questions.
    """
    asked = evaluated(artifact, part, part.rows, results)
    pairs, depths = _setting(asked, "pairs"), _setting(asked, "depths")
    columns = []
    for pair in pairs:
        name, header = pair_name(pair), f"N = {pair[0]}, R = {pair[1]}"
        columns.append(accuracy_column(name, f"{header} ↑"))
        columns += [
            accuracy_column(f"{name}_d{depth}", f"{header}, depth {depth}%", hidden=True)
            for depth in depths
        ]
    if len(pairs) > 1:
        columns.append(MetricColumn("drop", "Drop ↓", _drop(pairs)))
    notes = [
        f"{_asked(asked)} Accuracy: mean share of the needles asked for that are answered. "
        f"{WILSON}",
        _shared(asked),
        training_note(part.rows, trainings(part.rows, artifact.seeds, results)),
    ]
    return metric_section(artifact, part, results, columns, decimals=DECIMALS, notes=notes)


def needles_long(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section of accuracy by context length; `longest` is the last of them.

    Raises:
        UserError: a result is missing, or was not measured at several lengths.
    """
    asked = evaluated(artifact, part, part.rows, results)
    lengths, depths = context_lengths(asked), _setting(asked, "depths")
    pair = _setting(asked, "pairs")[0]
    setting = pair_name(pair)
    columns = []
    for length in lengths:
        name = f"l{length}"
        columns.append(accuracy_column(name, f"{length} ↑", f"{setting}_{name}"))
        columns += _by_depth(name, str(length), f"{setting}_{name}", depths)
    columns.append(accuracy_column("average", "All ↑", setting))
    last = f"{setting}_l{lengths[-1]}"
    columns.append(accuracy_column("longest", "Longest", last, hidden=True))
    columns += _by_depth("longest", "Longest", last, depths)
    notes = [
        f"{_asked(asked)} N = {pair[0]}, R = {pair[1]}; columns are context lengths in tokens, "
        f"mean over the depths. {WILSON}",
        _shared(asked),
        training_note(part.rows, trainings(part.rows, artifact.seeds, results)),
    ]
    return metric_section(artifact, part, results, columns, decimals=DECIMALS, notes=notes)


def _shared(asked: Sequence[Result]) -> str:
    """Say what sharing prefixes saved; seconds differ from run to run and stay in the details."""
    computed, given = (
        sum(defined(result, f"{kind}_positions") for result in asked)
        for kind in ("computed", "given")
    )
    return (
        f"Prompts share the KV cache of what they have in common: {computed / given:.0%} of their "
        "positions were computed."
    )


def context_lengths(asked: Sequence[Result]) -> list[int]:
    """Context lengths that all results were measured at.

    Raises:
        UserError: They were measured at one length alone.
    """
    lengths: list[int] | None = _setting(asked, "lengths")
    if lengths is None or len(lengths) < 2:
        raise UserError(
            f"suite '{asked[0].suite}' has the lengths {lengths}: accuracy by length needs two or "
            "more"
        )
    return lengths


def accuracy_column(
    name: str, header: str, setting: str | None = None, *, hidden: bool = False
) -> MetricColumn:
    """Column of an accuracy; ``setting`` is its ending in the metrics where it is not ``name``."""
    ending = setting or name

    def value(result: Result) -> float:
        return accuracy(result, ending)

    def remark(result: Result) -> str:
        low, high = answers_interval(result, ending)
        asked = defined(result, f"asked_{ending}")
        return f"({plain(low, 2)} to {plain(high, 2)}, {asked:.0f} asked)"

    return MetricColumn(name, header, value, remark, hidden)


def accuracy(result: Result, setting: str) -> float:
    """Accuracy of one result at a setting, a depth or a length.

    Raises:
        UserError: it was not measured.
    """
    return defined(result, f"accuracy_{setting}")


def answers_interval(result: Result, setting: str) -> tuple[float, float]:
    """Wilson's interval of the answers of one result."""
    correct, asked = (defined(result, f"{name}_{setting}") for name in ("correct", "asked"))
    return wilson_interval(int(correct), int(asked))


def _by_depth(name: str, header: str, setting: str, depths: Sequence[int]) -> list[MetricColumn]:
    return [
        accuracy_column(
            f"{name}_d{depth}", f"{header}, depth {depth}%", f"{setting}_d{depth}", hidden=True
        )
        for depth in depths
    ]


def _drop(pairs: Sequence[Sequence[int]]) -> Callable[[Result], float]:
    first, last = pair_name(pairs[0]), pair_name(pairs[-1])
    return lambda result: accuracy(result, first) - accuracy(result, last)


def _asked(asked: Sequence[Result]) -> str:
    words = {
        "recall": "Needles are keys with values of the builtin recall corpus in its own haystack; "
        "each question is a prompt of its own on the same context.",
        "text": "Needles are English sentences in held-out text, the template LWM's.",
    }
    samples, depths = _setting(asked, "samples"), _setting(asked, "depths")
    return (
        f"{words[_setting(asked, 'format')]} {samples} prompts at each of the depths "
        f"{', '.join(map(str, depths))}% of the first needle asked for; the others stand at random "
        "places."
    )


def _setting(asked: Sequence[Result], name: str) -> Any:
    return shared_setting(asked, "config", name)
