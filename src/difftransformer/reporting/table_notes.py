"""What the rows of a section have in common, in words: budget, sizes, learning rates, settings."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from difftransformer.config.resolved_artifacts import DEVIATION, MARK, ResolvedArtifact, ResolvedRow
from difftransformer.errors import UserError
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.number_format import format_count, format_learning_rate


def shared_setting(results: Iterable[Result], *path: str) -> Any:
    """Return the setting at a path, which all results must have alike.

    Raises:
        UserError: results were made with different values, or one lacks the setting.
    """
    seen: dict[str, tuple[Any, Result]] = {}
    for result in results:
        value: Any = result.settings
        for key in path:
            if not isinstance(value, dict) or key not in value:
                raise UserError(
                    f"{result.job_id}: its settings have no {'.'.join(path)}: rerun the job"
                )
            value = value[key]
        seen.setdefault(repr(value), (value, result))
    found = list(seen.values())
    assert found, "a setting of no results"
    if len(found) > 1:
        (one, first), (two, second) = found[:2]
        raise UserError(
            f"{'.'.join(path)} is {one} in {first.job_id} and {two} in {second.job_id}, which "
            "share a table: rerun the older one"
        )
    return found[0][0]


def training_note(rows: Sequence[ResolvedRow], trained: Sequence[Result]) -> str:
    """Say budget, sizes and learning rates, and how far the held-out text is new."""
    tokens = [require_metric(result, "tokens") for result in trained]
    sizes = [require_metric(result, "non_embedding_parameters") for result in trained]
    return (
        f"Training: {format_range(tokens)} tokens a run; {format_range(sizes)} parameters without "
        "embeddings; "
        f"peak learning rate {_rates(rows, trained)}.{_overlap_note(trained)}"
    )


def _overlap_note(trained: Sequence[Result]) -> str:
    """Say what of the validation text the runs were trained on; nothing of generated rows."""
    found = [text for result in trained if (text := result.settings.get("held_out")) is not None]
    if not found:
        return ""
    documents, tokens = (
        format_range([text[key] for text in found]) for key in ("documents", "tokens")
    )
    lengths = format_range([text["n"] for text in found])
    share = format_range([text["overlap"] for text in found], "{:.2%}".format)
    noun = "document" if documents == "1" else "documents"
    note = (
        f" Held-out text: {documents} {noun}, {tokens} tokens, {share} of which lie in "
        f"{lengths}-grams that stand in the training text"
    )
    curves = curve_tokens(trained)
    return note + (f"; losses while training: its {curves}." if curves else ".")


def curve_tokens(trained: Sequence[Result]) -> str:
    """Say which part of the validation text losses while training are of; empty: all of it."""
    parts = [part for result in trained if (part := _curve_part(result)) is not None]
    return f"first {format_range(parts)} tokens" if parts else ""


def _curve_part(trained: Result) -> int | None:
    """Tokens that a run's losses while training are of; None: all that there are."""
    asked: int | None = trained.settings["training"]["validation_tokens"]
    text = trained.settings.get("held_out")
    if asked is None or (text is not None and asked >= text["tokens"]):
        return None
    return asked


def corpus_note(trained: Iterable[Result]) -> list[str]:
    """Name what the runs were trained on."""
    found = {str(name) for one in trained if (name := one.settings.get("dataset")) is not None}
    if not found:
        return []
    return [f"{'Corpus' if len(found) == 1 else 'Corpora'}: {', '.join(sorted(found))}."]


INTERVAL_SOURCES = "over seeds and, where it is known, what each was asked"
"""What an interval of a mean or of a difference holds."""


def seeds_note(artifact: ResolvedArtifact) -> str:
    """Say what ± means with so many seeds, and which of them test no claim."""
    seeds = artifact.seeds
    if len(seeds) == 1:
        return f"One seed ({seeds[0]}): no interval."
    listed = ", ".join(map(str, seeds))
    note = (
        f"{len(seeds)} seeds ({listed}): mean ± half the 95% t interval of the mean, "
        f"{INTERVAL_SOURCES}."
    )
    looked_at = [seed for seed in seeds if seed in artifact.exploratory_seeds]
    if looked_at:
        note += f" Exploratory seeds test no claim: {', '.join(map(str, looked_at))}."
    return note


def interpretations_note(artifact: ResolvedArtifact) -> list[str]:
    """Say once what is ours in each marked row; nothing where no row is marked."""
    reasons = {
        f"{row.label.removesuffix(MARK)}: {reason}": None
        for part in artifact.sections
        for row in part.rows
        if (reason := row.facts.get(DEVIATION)) is not None
    }
    if not reasons:
        return []
    return [
        "* An interpretation: the source leaves something open, and the row shows our reading of "
        f"it, not the authors' model. {'; '.join(reasons)}."
    ]


def proxy_title(title: str, items: str | None) -> str:
    """Title of numbers on ``items`` that stand in for those of a set; None: they are the set's."""
    return title if items is None else f"{title} (stand-in: {items})"


def format_range(values: Sequence[float], write: Callable[[float], str] = format_count) -> str:
    """Write numbers as their one value, or as the range of them."""
    low, high = write(min(values)), write(max(values))
    return low if low == high else f"{low} to {high}"


def _rates(rows: Sequence[ResolvedRow], trained: Sequence[Result]) -> str:
    by_run = {
        result.run: format_learning_rate(float(result.settings["training"]["lr"]))
        for result in trained
    }
    by_rate: dict[str, list[str]] = {}
    for row in rows:
        by_rate.setdefault(by_run[row.run], []).append(row.label)
    if len(by_rate) == 1:
        return f"{next(iter(by_rate))} for every row"
    return "; ".join(f"{one} ({', '.join(labels)})" for one, labels in by_rate.items())
