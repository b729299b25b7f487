"""Notes below tables: training tokens, sizes, learning rates, corpus, seeds, deviations."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from difftransformer.config.resolved_artifacts import DEVIATION, MARK, ResolvedArtifact, ResolvedRow
from difftransformer.errors import UserError
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.number_format import format_count, format_learning_rate


def shared_setting(results: Iterable[Result], *path: str) -> Any:
    """Return the value of the setting at a key path, which must be the same in all results.

    Raises:
        UserError: Results have different values, or one lacks the setting.
    """
    values: dict[str, tuple[Any, Result]] = {}
    for result in results:
        value: Any = result.settings
        for key in path:
            if not isinstance(value, dict) or key not in value:
                raise UserError(
                    f"{result.job_id}: its settings have no {'.'.join(path)}; rerun the job"
                )
            value = value[key]
        values.setdefault(repr(value), (value, result))
    (value, first), *others = values.values()
    for other, second in others:
        raise UserError(
            f"{'.'.join(path)} is {value} in {first.job_id} and {other} in {second.job_id}, which "
            "share a table; rerun the older job"
        )
    return value


def training_note(rows: Sequence[ResolvedRow], trained: Sequence[Result]) -> str:
    """Return a table note on tokens, sizes, learning rates and the held-out text of models."""
    rates = _learning_rates(rows, trained)
    tokens = [require_metric(result, "tokens") for result in trained]
    sizes = [require_metric(result, "non_embedding_parameters") for result in trained]
    return (
        f"Training: {format_range(tokens)} tokens per run; {format_range(sizes)} parameters "
        f"without embeddings; peak learning rate {rates}.{_held_out_note(trained)}"
    )


def _held_out_note(trained: Sequence[Result]) -> str:
    """Return a note on the held-out text and its overlap with the training text, if any."""
    texts = [text for result in trained if (text := result.settings.get("held_out")) is not None]
    if not texts:
        return ""
    documents, tokens, n = (
        format_range([text[key] for text in texts]) for key in ("documents", "tokens", "n")
    )
    overlap = format_range([text["overlap"] for text in texts], "{:.2%}".format)
    note = (
        f" Held-out text: {documents} document{'s' * (documents != '1')}, {tokens} tokens; "
        f"{overlap} of the tokens are in {n}-grams of the training text"
    )
    part = curve_tokens(trained)
    return note + (f"; losses during training use the {part}." if part else ".")


def curve_tokens(trained: Sequence[Result]) -> str:
    """Return a text on the part of the held-out text used for losses during training.

    It is empty if all of the text is used.
    """
    parts = [part for result in trained if (part := _curve_part(result)) is not None]
    return f"first {format_range(parts)} tokens" if parts else ""


def _curve_part(trained: Result) -> int | None:
    """Return the number of held-out tokens that losses during training use; None: all."""
    limit: int | None = trained.settings["training"]["validation_tokens"]
    text = trained.settings.get("held_out")
    if limit is None or (text is not None and limit >= text["tokens"]):
        return None
    return limit


def corpus_note(trained: Iterable[Result]) -> list[str]:
    """Return a list with the table note that names the training corpora."""
    names = {str(name) for run in trained if (name := run.settings.get("dataset")) is not None}
    if not names:
        return []
    return [f"{'Corpus' if len(names) == 1 else 'Corpora'}: {', '.join(sorted(names))}."]


INTERVAL_SOURCES = "over seeds and, where recorded, items"
"""Sources of variance that the interval of a mean or a difference includes."""


def seeds_note(artifact: ResolvedArtifact) -> str:
    """Return a table note that defines ± and names the exploratory seeds."""
    seeds = artifact.seeds
    if len(seeds) == 1:
        return f"One seed ({seeds[0]}): no interval."
    listed = ", ".join(map(str, seeds))
    note = (
        f"{len(seeds)} seeds ({listed}): mean ± half the 95% t interval of the mean, "
        f"{INTERVAL_SOURCES}."
    )
    exploratory = [seed for seed in seeds if seed in artifact.exploratory_seeds]
    if exploratory:
        seeds_text = ", ".join(map(str, exploratory))
        note += f" Exploratory seeds, excluded from tests of claims: {seeds_text}."
    return note


def deviations_note(artifact: ResolvedArtifact) -> list[str]:
    """Return a list with the table note on rows that deviate from their source, or an empty one."""
    reasons = {
        f"{row.label.removesuffix(MARK)}: {reason}": None
        for section in artifact.sections
        for row in section.rows
        if (reason := row.facts.get(DEVIATION)) is not None
    }
    if not reasons:
        return []
    return [
        "* The source leaves a detail of this model open, so the row shows our interpretation, "
        f"not the authors' model. {'; '.join(reasons)}."
    ]


def proxy_title(title: str, items: str | None) -> str:
    """Return a section title that names ``items`` as a synthetic proxy; unchanged if None."""
    return title if items is None else f"{title} (synthetic proxy: {items})"


def format_range(values: Sequence[float], write: Callable[[float], str] = format_count) -> str:
    """Return the range of numbers as text, or a single number if all are equal."""
    low, high = write(min(values)), write(max(values))
    return low if low == high else f"{low} to {high}"


def _learning_rates(rows: Sequence[ResolvedRow], trained: Sequence[Result]) -> str:
    by_run = {
        result.run: format_learning_rate(float(result.settings["training"]["lr"]))
        for result in trained
    }
    by_rate: dict[str, list[str]] = {}
    for row in rows:
        by_rate.setdefault(by_run[row.run], []).append(row.label)
    if len(by_rate) == 1:
        return f"{next(iter(by_rate))} for every row"
    return "; ".join(f"{lr} ({', '.join(labels)})" for lr, labels in by_rate.items())
