"""Verdict job: reads result files and writes verdicts.csv, .json and .md."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field
from tabulate import tabulate

from difftransformer.config.base import Settings
from difftransformer.config.resolved_artifacts import ResolvedArtifact, TestedClaims
from difftransformer.errors import DataError, UserError
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.checksums import write_checked
from difftransformer.provenance.result import read_document
from difftransformer.reporting.collect import Results, load_results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.evidence import Evidence, contrast_evidence
from difftransformer.reporting.formats.markdown import escape, prose
from difftransformer.reporting.formats.spreadsheet import to_csv
from difftransformer.reporting.formats.table_text import VERDICT_SYMBOLS
from difftransformer.reporting.number_format import pluralize, scale_and_size
from difftransformer.reporting.table_job import make_table
from difftransformer.reporting.verdicts import Verdict, decide

if TYPE_CHECKING:
    from pandas import DataFrame

logger = logging.getLogger(__name__)


class VerdictsDocument(Settings):
    """All verdicts of a scale, as written to verdicts.json."""

    scale: str
    summary: list[str] = Field(description="Counts of verdicts, and the primary ones, line by line")
    note: str = Field(
        default="", description="Results that were known when the claims were registered"
    )
    verdicts: list[Verdict]


def build_verdicts(
    tested: TestedClaims, *, results: Iterable[Path], output: Path
) -> VerdictsDocument:
    """Test the claims of a scale and write the verdicts; equal results give an identical csv.

    Args:
        tested: Claims of the scale, with the tables that have their numbers.
        results: Paths of the result files from which these tables are made.
        output: Path of verdicts.json; csv and md are written next to it.

    Raises:
        DataError: A result is damaged.
        UserError: A result behind a requested table is missing.
    """
    requested = load_results(results, tested.scale)
    evidence_by_claim: dict[str, list[Evidence]] = {}
    for artifact in tested.tables:
        if (files := tested.earlier_results.get(artifact.artifact)) is None:
            evidence_by_claim |= gather_evidence(tested, artifact, requested)
            continue
        try:
            earlier = load_results(map(Path, files), tested.scale)
            evidence_by_claim |= gather_evidence(tested, artifact, earlier)
        except UserError as error:
            logger.warning(f"skipped: {error}")
    verdicts = decide(tested, evidence_by_claim)
    document = VerdictsDocument(
        scale=tested.scale, summary=summarize(tested, verdicts), note=tested.note, verdicts=verdicts
    )
    texts = {".csv": to_csv(verdicts_frame(verdicts)), ".md": to_markdown(document)}
    for suffix, text in texts.items():
        write_text(output.with_suffix(suffix), text)
    write_checked(
        output, document.model_dump(mode="json"), [output.with_suffix(suffix) for suffix in texts]
    )
    return document


def read_table(path: Path) -> TableDocument:
    """Return a table, read from a file that `build_table` wrote.

    Raises:
        DataError: The file is missing or damaged.
    """
    return read_document(path, TableDocument, "table", "rebuild the table")


def read_earlier_tables(paths: Iterable[Path]) -> Iterator[TableDocument]:
    """Yield the tables of earlier builds from their files; skip unreadable ones with a warning."""
    for path in paths:
        try:
            yield read_table(path)
        except DataError as error:
            logger.warning(f"skipped: {error}")


def read_verdicts(path: Path) -> VerdictsDocument:
    """Return all verdicts of a scale, read from its verdicts.json.

    Raises:
        DataError: The file is missing or damaged.
    """
    return read_document(path, VerdictsDocument, "set of verdicts", "build them with `snakemake`")


_EVIDENCE = {*Evidence.model_fields} - {
    "metric", "row", "baseline", "published", "job_ids", "overridden", "parameters",
}  # fmt: skip
"""Columns of the verdicts' csv that follow the fields of the verdict."""


def verdicts_frame(verdicts: Sequence[Verdict]) -> "DataFrame":
    """Return verdicts as a DataFrame, one line per contrast, with all data to recompute them.

    Lists are joined by semicolons; missing values are empty.
    """
    import pandas as pd

    lines = [
        _line(verdict, number) for verdict in verdicts for number in range(len(verdict.contrasts))
    ]
    return pd.DataFrame(lines, dtype=object)


def _line(verdict: Verdict, number: int) -> dict[str, object]:
    contrast, claim = verdict.contrasts[number], verdict.about
    values = {
        "claim": verdict.claim,
        "contrast": number + 1,
        **claim.model_dump(include={"paper", "endpoint", "artifact"}),
        "verdict": verdict.words,
        **verdict.model_dump(include={"scale", "parameters", "reason"}),
        **contrast.model_dump(include={"metric", "row", "baseline"}),
        **contrast.model_dump(include={"effect", "ci_low", "ci_high"}),
        "published_effect": contrast.published,
        "n_seeds": contrast.pairs,
        "seeds_needed": verdict.seeds_needed,
        "p": contrast.p,
        "p_claim": verdict.p,
        "p_adjusted": verdict.p_adjusted,
        **claim.model_dump(include={"test", "compare", "margin"}),
        "claimed": claim.direction,
        "family": claim.family,
        **verdict.model_dump(include={"alpha", "digest"}),
        **contrast.model_dump(include=_EVIDENCE),
        "run_ids": contrast.job_ids,
    }
    return {name: _joined(value) for name, value in values.items()}


def summarize(tested: TestedClaims, verdicts: Sequence[Verdict]) -> list[str]:
    """Return lines that summarize verdicts: counts, untestable claims, and primary endpoints."""
    if not verdicts:
        return [f"No table at scale {tested.scale} tests a registered claim."]
    scale_and_sizes = scale_and_size(
        tested.scale, [size for verdict in verdicts for size in verdict.parameters]
    )
    by_words = Counter(verdict.words for verdict in verdicts)
    counts = ", ".join(f"{number} {words}" for words, number in by_words.items())
    lines = [
        f"{pluralize(len(verdicts), 'registered claim')} at scale {scale_and_sizes}: {counts}."
    ]
    excluded = Counter(
        why for verdict in verdicts if (why := tested.not_testable.get(verdict.claim))
    )
    lines += [f"Not testable at this scale, {n} of them: {why}." for why, n in excluded.items()]
    primary = [verdict for verdict in verdicts if verdict.about.endpoint == "primary"]
    if primary:
        lines.append(
            "Primary: " + "; ".join(f"{verdict.claim} {verdict.words}" for verdict in primary) + "."
        )
    return lines


def to_markdown(document: VerdictsDocument) -> str:
    """Return the verdicts as Markdown."""
    parts = [f"# Verdicts at scale {document.scale}", "\n\n".join(map(prose, document.summary))]
    rows = [
        [
            f"{verdict.claim} ({verdict.about.endpoint})",
            escape(verdict.about.question),
            f"{VERDICT_SYMBOLS[verdict.verdict]} {verdict.words} ({verdict.where})",
            prose(verdict.reason),
            verdict.digest,
        ]
        for verdict in document.verdicts
    ]
    headers = ["Claim", "Question", "Verdict", "Reason", "Definition"]
    parts.append(tabulate(rows, headers, tablefmt="pipe", disable_numparse=True))
    return "\n\n".join([*parts, prose(document.note)]) + "\n"


def gather_evidence(
    tested: TestedClaims, artifact: ResolvedArtifact, results: Results
) -> dict[str, list[Evidence]]:
    """Return the evidence on each claim about an artifact, by claim id."""
    table = make_table(artifact, results)
    return {
        name: [
            contrast_evidence(contrast, claim, name, artifact, table, results)
            for contrast in claim.contrasts
        ]
        for name, claim in tested.claims.items()
        if claim.artifact == artifact.artifact
    }


def _joined(value: object) -> object:
    if not isinstance(value, list):
        return value
    return ";".join("" if item is None else str(item) for item in value)
