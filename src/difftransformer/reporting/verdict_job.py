"""The job of the verdicts: tables and result files in, verdicts.csv, .json and .md out."""

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field
from tabulate import tabulate

from difftransformer.config.base import Settings
from difftransformer.config.claims import DECIDED, VerdictsSlice
from difftransformer.errors import DataError
from difftransformer.machine import gpus
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.published import publish
from difftransformer.provenance.result import Result, read_document, read_result
from difftransformer.reporting.document import Evidence, TableDocument
from difftransformer.reporting.formats.markdown import escape, prose
from difftransformer.reporting.formats.spreadsheet import to_csv
from difftransformer.reporting.formats.wording import SYMBOLS, duration
from difftransformer.reporting.numbers import counted, scale_and_size
from difftransformer.reporting.verdicts import Verdict, judge

if TYPE_CHECKING:
    from pandas import DataFrame

logger = logging.getLogger(__name__)

FIRST = (
    "claim", "paper", "primary", "artifact", "verdict", "scale", "parameters", "reason",
    "direction", "effect", "ci_low", "ci_high", "published_effect", "seeds", "seeds_needed",
    "p", "p_adjusted", "declared", "post_hoc", "run_ids",
)  # fmt: skip
"""Columns that a reader looks for; behind them stands what the tests can be repeated from."""
_SILENT = ("not testable here", "no data")
_NO_COLUMNS = {"text", "source", "minutes", "command"}  # words, and times, which differ by machine


class VerdictsDocument(Settings):
    """All verdicts of a scale, as the report reads them."""

    scale: str
    seeds: int
    summary: list[str] = Field(description="What they come to, line by line")
    verdicts: list[Verdict]


def build_verdicts(
    asked: VerdictsSlice,
    *,
    tables: Iterable[Path],
    results: Iterable[Path],
    output: Path,
    kept: Iterable[Path] = (),
) -> VerdictsDocument:
    """Judge the claims of all tables together; equal inputs give the same csv, byte for byte.

    Args:
        asked: All claims of the scale.
        tables: ``{artifact}.json`` of every table there is, as `build_table` wrote them.
        results: Result files behind them, whose times say what more seeds would take.
        output: verdicts.json; csv and md are written beside it.
        kept: Tables that an earlier call built; one that cannot be read any more is left out.

    Raises:
        DataError: A table or a result is damaged.
    """
    read = [*map(read_table, tables), *read_kept(kept)]
    found = judge(asked, _evidence(asked, read))
    jobs = {result.job_id: result for result in map(read_result, sorted(set(results)))}
    timed = [_with_command(one, asked, jobs) for one in found]
    document = VerdictsDocument(
        scale=asked.scale,
        seeds=max((len(table.seeds) for table in read), default=0),
        summary=summarise(asked, timed),
        verdicts=timed,
    )
    texts = {".csv": to_csv(frame(timed)), ".md": to_markdown(document)}
    for suffix, text in texts.items():
        write_text(output.with_suffix(suffix), text)
    publish(output, document.model_dump(mode="json"), [output.with_suffix(one) for one in texts])
    return document


def read_table(path: Path) -> TableDocument:
    """Read a table as `build_table` wrote it.

    Raises:
        DataError: It is missing or damaged.
    """
    return read_document(path, TableDocument, "table", "build the table again")


def read_kept(paths: Iterable[Path]) -> Iterator[TableDocument]:
    """Read tables that nobody asked for; one that cannot be read is left out and named."""
    for path in paths:
        try:
            yield read_table(path)
        except DataError as error:
            logger.warning(f"left out: {error}")


def read_verdicts(path: Path) -> VerdictsDocument:
    """Read all verdicts of a scale.

    Raises:
        DataError: They are missing or damaged.
    """
    return read_document(path, VerdictsDocument, "set of verdicts", "build them with `snakemake`")


def frame(verdicts: Sequence[Verdict]) -> "DataFrame":
    """Verdicts as a table: a line a claim; lists are joined by semicolons, absent values empty."""
    import pandas as pd

    lines = [one.model_dump(exclude=_NO_COLUMNS) for one in verdicts]
    order = [*FIRST, *(key for key in Verdict.model_fields if key not in {*FIRST, *_NO_COLUMNS})]
    return pd.DataFrame(
        [{key: _joined(line[key]) for key in order} for line in lines], columns=order, dtype=object
    )


def summarise(asked: VerdictsSlice, verdicts: Sequence[Verdict]) -> list[str]:
    """Say what they come to, and what to run next."""
    if not verdicts:
        return [f"No table at scale {asked.scale} judges a claim."]
    by_name = Counter(one.verdict for one in verdicts)
    sides = Counter(one.direction for one in verdicts if one.verdict not in _SILENT)
    said = ", ".join(f"{by_name[name]} {name}" for name in SYMBOLS if by_name[name])
    place = scale_and_size(asked.scale, [size for one in verdicts for size in one.parameters])
    lines = [f"{counted(len(verdicts), 'claim')} at scale {place}: {said}."]
    declared = Counter(why for one in verdicts if (why := asked.not_testable.get(one.claim)))
    lines += [f"Not testable at this scale, {n} of them: {why}." for why, n in declared.items()]
    if sides:
        lines.append(
            f"Whatever is decided: {sides['as claimed']} of {sum(sides.values())} testable ones "
            f"point as claimed, {sides['opposite']} the other way."
        )
    primary = [one for one in verdicts if one.primary]
    if primary:
        shown = (f"{one.claim} {one.verdict} ({_open_side(one)}{one.where})" for one in primary)
        lines.append("Primary: " + "; ".join(shown))
    open_ones = [one for one in verdicts if one.minutes is not None]
    if open_ones:
        cheapest = min(open_ones, key=lambda one: (not one.primary, one.minutes))
        lines.append(
            f"Next: `{cheapest.command}` to decide {cheapest.claim}, "
            f"{duration(cheapest.minutes or 0)} here."
        )
    return lines


def to_markdown(document: VerdictsDocument) -> str:
    """Write them for readers, those that compare the same runs together."""
    parts = [f"# Verdicts at scale {document.scale}", "\n\n".join(map(prose, document.summary))]
    for group in dict.fromkeys(one.group for one in document.verdicts):
        grouped = [one for one in document.verdicts if one.group == group]
        rows = [
            [
                one.claim + (" (primary)" if one.primary else ""),
                escape(one.text),
                f"{SYMBOLS[one.verdict]} {one.verdict} ({one.where})",
                one.direction,
                prose(". ".join(_why(one))),
            ]
            for one in grouped
        ]
        grid = tabulate(
            rows, ["Claim", "Statement", "Verdict", "Direction", "Why"], tablefmt="pipe",
            disable_numparse=True,
        )  # fmt: skip
        parts += [f"## {escape(group)}", grid]
        for why in dict.fromkeys(one.post_hoc for one in grouped if one.post_hoc):
            claims = ", ".join(one.claim for one in grouped if one.post_hoc == why)
            parts.append(f"{claims}, changed after results were seen: {escape(why)}")
    parts.append("Claims under one heading compare the same runs, and share their chance.")
    return "\n\n".join(parts) + "\n"


def _open_side(verdict: Verdict) -> str:
    """The side on which the mean of an undecided claim lies; a verdict that decides names it."""
    undecided = verdict.direction and verdict.verdict not in DECIDED
    return f"{verdict.direction}, " if undecided else ""


def _why(verdict: Verdict) -> list[str]:
    """The reason of a verdict, and what would decide it."""
    said = [verdict.reason]
    if verdict.command:
        took = "" if verdict.minutes is None else f"{duration(verdict.minutes).capitalize()} here: "
        said.append(f"{took}`{verdict.command}`")
    return said


def _evidence(asked: VerdictsSlice, tables: Sequence[TableDocument]) -> dict[str, Evidence]:
    """Evidence on every claim, by the table that declares it where that was built."""
    found: dict[str, Evidence] = {}
    for table in tables:
        for one in table.evidence:
            if one.claim not in asked.claims:
                continue  # of a table that was built when it was still declared
            owned = asked.claims[one.claim].artifact == table.artifact
            if owned or one.claim not in found:
                found[one.claim] = one
    return found


def _with_command(verdict: Verdict, asked: VerdictsSlice, jobs: Mapping[str, Result]) -> Verdict:
    """Add what would decide it, and how long that takes by the jobs behind it."""
    if verdict.seeds_needed is None:
        return verdict
    more = max(verdict.seeds_needed - verdict.seeds, 1)
    given = asked.given or f"--config scale={asked.scale}"
    claim = asked.claims[verdict.claim]
    # A count passes over the spent seeds of the scale, not over those that the claim has seen.
    seen = sum(seed >= claim.first_seed for seed in claim.seen(asked.scale))
    command = f"snakemake {verdict.artifact} {given} seeds={verdict.seeds + more + seen}"
    known = _upstream(verdict.run_ids, jobs)
    if not known:  # of a table that is kept, whose jobs are not among these
        return verdict.model_copy(update={"command": command})
    minutes = more * _wall_seconds(jobs[job] for job in known) / max(verdict.seeds, 1) / 60
    return verdict.model_copy(update={"minutes": round(minutes, 2), "command": command})


def _wall_seconds(jobs: Iterable[Result]) -> float:
    """Seconds that jobs take here side by side: a core for each, and a card for those on GPUs."""
    everywhere = on_cards = 0.0
    for job in jobs:
        everywhere += job.provenance.seconds
        if str(job.settings.get("resolved", {}).get("device")).startswith("cuda"):
            world = job.settings.get("training", {}).get("world", 1)
            on_cards += job.provenance.seconds * world
    return max(everywhere / (os.cpu_count() or 1), on_cards / max(gpus.places(), 1))


def _upstream(job_ids: Iterable[str], jobs: Mapping[str, Result]) -> set[str]:
    """Jobs with those that they rest on."""
    found: set[str] = set()
    open_ones = list(job_ids)
    while open_ones:
        job = open_ones.pop()
        if job in jobs and job not in found:
            found.add(job)
            open_ones += jobs[job].settings.get("upstream", ())
    return found


def _joined(value: object) -> object:
    if not isinstance(value, list):
        return value
    return ";".join("" if one is None else str(one) for one in value)
