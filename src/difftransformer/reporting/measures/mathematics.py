"""Columns of mathematics: accuracy by set with lengths of output, and by tokens of training."""

import re
from collections.abc import Sequence

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.config.math_sets import MATH_SETS
from difftransformer.config.suites.base import AVERAGE
from difftransformer.errors import UserError
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import Results, defined, metric
from difftransformer.reporting.conditions import evaluated, shared_setting, training_note, trainings
from difftransformer.reporting.document import Section
from difftransformer.reporting.measures.metric_columns import MetricColumn, metric_section
from difftransformer.reporting.numbers import count, plain

DECIMALS = 1
FINAL = "final"
"""Column of the average after all of stage 1."""
_KEPT = re.compile(rf"{AVERAGE}_t(\d+)")


def mathematics(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section of accuracy by set, its average and the mean length of output.

    Raises:
        UserError: a result is missing, or rows were asked different items.
    """
    found = evaluated(artifact, part, part.rows, results)
    sets: list[str] = shared_setting(found, "config", "tasks")
    columns = [_accuracy(name, f"{label_of(name)} ↑", name) for name in [*sets, AVERAGE]]
    columns.append(_length(AVERAGE, "Output tokens ↓", hidden=False))
    columns += [_length(name, f"{label_of(name)}, output tokens", hidden=True) for name in sets]
    return metric_section(
        artifact, part, results, columns, decimals=DECIMALS,
        notes=_notes(artifact, part, results, found, sets),
    )  # fmt: skip


def math_by_tokens(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section of the average accuracy by tokens of stage 1.

    Raises:
        UserError: a result is missing, or rows were measured after different tokens.
    """
    found = evaluated(artifact, part, part.rows, results)
    sets: list[str] = shared_setting(found, "config", "tasks")
    columns = []
    for tokens in kept_tokens(found):
        columns.append(_accuracy(f"t{tokens}", f"{count(tokens)} ↑", f"{AVERAGE}_t{tokens}"))
        columns += [
            _accuracy(f"{name}_t{tokens}", label_of(name), f"{name}_t{tokens}", hidden=True)
            for name in sets
        ]
    columns.append(_accuracy(FINAL, "all tokens ↑", AVERAGE, compared=True))
    columns += [
        _accuracy(name, f"{label_of(name)}, all tokens", name, hidden=True) for name in sets
    ]
    return metric_section(
        artifact, part, results, columns, decimals=DECIMALS,
        notes=_notes(artifact, part, results, found, sets),
    )  # fmt: skip


def kept_tokens(found: Sequence[Result]) -> list[int]:
    """Tokens after which all results were measured, ascending, the last ones left out.

    Raises:
        UserError: They were measured after different tokens, or at the end alone.
    """
    seen = {tuple(sorted(_kept(result))): result for result in found}
    if len(seen) > 1:
        one, two, *_ = seen.values()
        raise UserError(
            f"{one.job_id} and {two.job_id} were measured after different tokens, but share a "
            "table: rerun the older one"
        )
    (tokens,) = seen
    if not tokens:
        raise UserError(
            f"{found[0].job_id} was measured at the end alone: give its run "
            "`training.keep_weights`, and the suite `kept_weights: true`"
        )
    return list(tokens)


def accuracy(result: Result, name: str) -> float:
    """Accuracy in % under a name of the suite's metrics.

    Raises:
        UserError: it was not measured.
    """
    return 100 * defined(result, name)


def stand_in(found: Sequence[Result]) -> str | None:
    """Return what stands in for the sets; None where the items are theirs."""
    return "generated arithmetic" if shared_setting(found, "config", "data") == "builtin" else None


def label_of(name: str) -> str:
    """Head of a set's column."""
    return "Avg" if name == AVERAGE else MATH_SETS[name].label


def _kept(result: Result) -> list[int]:
    return [int(known[1]) for name in result.metrics if (known := _KEPT.fullmatch(name))]


def _accuracy(
    id: str, header: str, name: str, *, hidden: bool = False, compared: bool = False
) -> MetricColumn:
    start, kept, tokens = name.partition("_t")

    def remark(result: Result) -> str:
        return f"(s.e. {plain(accuracy(result, f'{start}_stderr{kept}{tokens}'), DECIMALS)})"

    return MetricColumn(
        id, header, lambda result: accuracy(result, name), remark, hidden,
        compared or id == AVERAGE,
    )  # fmt: skip


def _length(name: str, header: str, *, hidden: bool) -> MetricColumn:
    def value(result: Result) -> float | None:
        return metric(result, f"{name}_tokens")

    return MetricColumn(f"{name}_tokens", header, value, None, hidden, not hidden)


def _notes(
    artifact: ArtifactSlice,
    part: SectionSlice,
    results: Results,
    found: Sequence[Result],
    sets: Sequence[str],
) -> list[str]:
    data = shared_setting(found, "config", "data")
    room = shared_setting(found, "config", "max_new_tokens")
    words = {
        "hub": "the sets, from a pinned commit",
        "builtin": "generated arithmetic in the fields of the sets, not the sets: do not compare "
        "with published numbers",
    }
    amounts = [f"{label_of(name)} {defined(found[0], f'{name}_samples'):.0f}" for name in sets]
    verifier = {one.provenance.versions.get("math-verify", "unknown") for one in found}
    trained = trainings(part.rows, artifact.seeds, results)
    notes = [
        f"Accuracy in %; Avg is the unweighted mean over sets. Items: "
        f"{words.get(data, 'the sets, from local files')}; {', '.join(amounts)}. No solved "
        f"examples; answers read and compared by math_verify {', '.join(sorted(verifier))}. A cell "
        "opens to its seeds with lm-eval's standard error.",
        f"Outputs are greedy, have room for {room} tokens and are counted in those of the models' "
        f"own tokenizer; {_span(found, sets, 'filled')} of a set's outputs fill their room.",
        training_note(part.rows, trained),
    ]
    if any(metric(result, f"{name}_cut") for result in found for name in sets):
        notes.append(
            f"Prompts too long for the context lose their first tokens: "
            f"{_span(found, sets, 'cut')} of a set's prompts."
        )
    return notes


def _span(found: Sequence[Result], sets: Sequence[str], name: str) -> str:
    shares = [defined(result, f"{one}_{name}") for result in found for one in sets]
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return low if low == high else f"{low} to {high}"
