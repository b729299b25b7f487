"""The report of synthetic results, as the workflow writes it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fake_configs import RESOLVER, SCALE, resolved_artifact
from fake_results import FakeResults
from judging import claims_of

from difftransformer.config.resolved_artifacts import (
    ReportConfig,
    ResolvedArtifact,
    RunDisplay,
    TestedClaims,
)
from difftransformer.reporting.figure_job import build_figure
from difftransformer.reporting.report_job import build_report
from difftransformer.reporting.table_job import build_table
from difftransformer.reporting.verdict_job import build_verdicts


def build_site(
    fake: FakeResults,
    folder: Path,
    tables: Sequence[str],
    figures: Sequence[str] = (),
    seeds: tuple[int, ...] = (0, 1, 2),
) -> Path:
    """Write tables, figures, verdicts and the report below ``folder``; returns its first page."""
    for name in tables:
        build_table(resolved_artifact(name, seeds=seeds), fake.results, folder / "tables" / name)
    for name in figures:
        figure = resolved_artifact(name, "figure", seeds=seeds)
        build_figure(figure, fake.results, folder / "figures" / name)
    slices = {
        name: resolved_artifact(name, seeds=seeds) for name in dict.fromkeys([*tables, *figures])
    }
    made = [folder / "tables" / f"{name}.json" for name in tables]
    verdicts, output = folder / "verdicts.json", folder / "report" / "index.html"
    claims = fake_claims([slices[name] for name in tables])
    build_verdicts(claims, results=fake.results, output=verdicts)
    build_report(
        report_config(tables, figures, seeds),
        tables=made,
        figures=[folder / "figures" / f"{name}.svg" for name in figures],
        verdicts=verdicts,
        results=fake.results,
        output=output,
    )
    return output


def fake_claims(tables: Sequence[ResolvedArtifact], **changes: Any) -> TestedClaims:
    """The registered claims, with some tables that have their numbers."""
    names = {table.artifact for table in tables}
    claims = {k: claim for k, claim in RESOLVER.registry.claims.items() if claim.artifact in names}
    tables_with_claims = [
        table for table in tables if table.artifact in {c.artifact for c in claims.values()}
    ]
    return claims_of(claims, scale=SCALE, tables=tables_with_claims, **changes)


def report_config(
    tables: Sequence[str], figures: Sequence[str], seeds: tuple[int, ...] = (0, 1, 2)
) -> ReportConfig:
    """The slice of a report on some tables and figures, with the runs that they show."""
    table_configs = [resolved_artifact(name, seeds=seeds) for name in tables]
    figure_configs = [resolved_artifact(name, "figure", seeds=seeds) for name in figures]
    runs = {
        row.run: RunDisplay(
            label=row.label,
            base=entry.base if (entry := RESOLVER.runs.get(row.run)) is not None else None,
            color=row.color,
        )
        for artifact in (*table_configs, *figure_configs)
        for part in artifact.sections
        for row in part.rows
    }
    return ReportConfig(
        scale=SCALE,
        scale_description="Made-up numbers of the shape of real ones",
        seeds=list(seeds),
        tables=table_configs,
        figures=figure_configs,
        runs=runs,
        papers={name: paper.title for name, paper in RESOLVER.papers.papers.items()},
        commands={name: f"snakemake {name} --config scale={SCALE}" for name in tables},
        command=f"snakemake {' '.join(tables)} --config scale={SCALE}",
        config_option=f"--config scale={SCALE}",
    )
