"""What a scale leaves out of the tables, and which run stands in for one that it does not build.

A table names the models that the paper shows. A small scale trains no 3B model for them: its file
says which of its own runs takes the row, or that the row is left out.
"""

from collections.abc import Mapping
from typing import NamedTuple

from difftransformer.config.artifacts import (
    ArtifactConfig,
    ArtifactsFile,
    ClaimConfig,
    ClaimsFile,
    PaperFile,
    PaperTable,
    RowConfig,
)
from difftransformer.config.validation import lookup
from difftransformer.errors import ConfigError

StandIns = Mapping[str, str | None]


class Declared(NamedTuple):
    """Tables, claims and published values, by the runs that a scale builds."""

    artifacts: dict[str, ArtifactConfig]
    claims: ClaimsFile
    paper: PaperFile


def at_scale(
    artifacts: ArtifactsFile,
    claims: ClaimsFile,
    paper: PaperFile,
    stand_ins: StandIns,
    place: str,
) -> Declared:
    """Put the runs that stand in everywhere.

    Raises:
        ConfigError: A section is left without rows, or two of its rows have become the same run.
    """
    tables = {name: _paper(table, stand_ins) for name, table in paper.tables.items()}
    return Declared(
        {
            name: _artifact(one, stand_ins, f"{place}.{name}")
            for name, one in artifacts.artifacts.items()
        },
        ClaimsFile(claims={name: _claim(one, stand_ins) for name, one in claims.claims.items()}),
        paper.model_copy(update={"tables": tables}),
    )


def check_stand_ins(stand_ins: StandIns, runs: Mapping[str, object], place: str) -> StandIns:
    """Return them, both sides being runs and none standing in by way of a third.

    Raises:
        ConfigError: one line with the unknown name and the nearest one.
    """
    for run, other in stand_ins.items():
        lookup(runs, run, "run", place)
        if other is not None:
            lookup(runs, other, "run", f"{place}.{run}")
            if other in stand_ins:
                raise ConfigError(f"{place}.{run}: '{other}' is itself not built at this scale")
    return stand_ins


def _artifact(artifact: ArtifactConfig, stand_ins: StandIns, where: str) -> ArtifactConfig:
    sections = []
    for index, part in enumerate(artifact.sections):
        rows = [row for row in (_row(one, stand_ins) for one in part.rows) if row is not None]
        runs = [row.run for row in rows]
        if not rows or len(set(runs)) < len(runs):
            what = "is left without rows" if not rows else f"shows a run twice: {runs}"
            raise ConfigError(f"{where}.sections[{index}]: {what} by the scale's stand_ins")
        against = _stand_in(part.against, stand_ins)
        sections.append(part.model_copy(update={"rows": rows, "against": against}))
    kept = [run for run in (_stand_in(one, stand_ins) for one in artifact.interventions) if run]
    return artifact.model_copy(update={"sections": sections, "interventions": kept})


def _claim(claim: ClaimConfig, stand_ins: StandIns) -> ClaimConfig:
    return claim.model_copy(
        update={
            "row": stand_ins.get(claim.row) or claim.row,
            "against": stand_ins.get(claim.against) or claim.against,
        }
    )


def _paper(table: PaperTable, stand_ins: StandIns) -> PaperTable:
    """Rename the published rows; those of rows left out, or of a taken name, keep theirs."""
    taken = set(table.rows)
    rows = {}
    for run, row in table.rows.items():
        other = stand_ins.get(run)
        rows[run if other is None or other in taken else other] = row
    return table.model_copy(update={"rows": rows})


def _row(row: RowConfig, stand_ins: StandIns) -> RowConfig | None:
    run = _stand_in(row.run, stand_ins)
    if run is None:
        return None
    return row.model_copy(update={"run": run, "against": _stand_in(row.against, stand_ins)})


def _stand_in(run: str | None, stand_ins: StandIns) -> str | None:
    return None if run is None else stand_ins.get(run, run)
