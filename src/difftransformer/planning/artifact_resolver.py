"""Resolution of tables and figures: rows with labels and facts, and published values."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from difftransformer.config.artifacts import ArtifactConfig, Kind, RowConfig, SectionConfig
from difftransformer.config.evaluation import Fact
from difftransformer.config.papers import PaperTable, Replication
from difftransformer.config.resolved_artifacts import (
    DEVIATION,
    MARK,
    ResolvedArtifact,
    ResolvedGridRow,
    ResolvedRow,
    ResolvedSection,
    SweepRow,
    with_overrides,
)
from difftransformer.errors import ConfigError, lookup

Facts = Mapping[str, Mapping[str, Fact]]
"""Run id -> facts on its model (heads, head_dim, norm); tables show no facts of other runs."""
Members = Callable[[str, str | None], list[str]]
"""Function of a run and a size grid that returns the run at each training recipe of the grid.

Without a size grid it returns only the run itself.
"""
Sweeps = Mapping[str, Sequence[SweepRow]]
"""Run whose learning rate is swept -> its learning rates."""


def _alone(run: str, size_grid: str | None) -> list[str]:
    assert size_grid is None, f"size grid {size_grid} of {run} without its members"
    return [run]


@dataclass(frozen=True)
class ArtifactResolver:
    """Resolver of tables and figures: the configured artifacts and the run properties they need."""

    artifacts: Mapping[str, ArtifactConfig]
    labels: Mapping[str, str]
    """Run id -> label, for every run of the scale."""
    location: str = "config/artifacts"
    """Folder of the artifacts' YAML files, for error messages."""
    pretrained: frozenset[str] = frozenset()
    """Ids of the runs that are pretrained models."""
    judges: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Suite -> names of the judges of its answers."""
    members: Members = _alone
    color: Callable[[str], int | None] = lambda run: None
    """Function that returns the color number of a run; None: no color."""
    replications: Sequence[Replication] = ()
    """Independent replications of differences that the papers report."""
    overrides: Callable[[str], str] = lambda run: ""
    """Function that describes the overrides of a run; the empty string means no overrides."""

    def published(self, name: str) -> PaperTable | None:
        """Return the published numbers of an artifact; None if the paper has none.

        An artifact may refer to the published numbers of another artifact.
        """
        paper = self.artifacts[name].paper
        return self.published(paper) if isinstance(paper, str) else paper

    def check(self, name: str) -> None:
        """Check that all runs and published tables that an artifact refers to exist.

        Raises:
            ConfigError: A name is unknown; one line with the key path, the name and the nearest
                known name.
        """
        artifact = lookup(self.artifacts, name, "artifact", self.location)
        location = f"{self.location}/{name}.yaml"
        for index, part in enumerate(artifact.sections):
            try:
                part.typed_options.check_rows([row.run for row in part.rows])
            except ValueError as error:
                raise ConfigError(f"{location}: sections[{index}].options: {error}") from None
            for number, row in enumerate(part.rows):
                row_location = f"{location}: sections[{index}].rows[{number}]"
                lookup(self.labels, row.run, "run", f"{row_location}.run")
                if row.paired_run is not None:
                    lookup(self.labels, row.paired_run, "run", f"{row_location}.paired_run")
        if isinstance(artifact.paper, str):
            others = self.artifacts.items()
            with_values = {
                key: other for key, other in others if isinstance(other.paper, PaperTable)
            }
            lookup(
                with_values, artifact.paper, "artifact with published values", f"{location}: paper"
            )

    def resolve(
        self,
        name: str,
        kind: Kind,
        *,
        scale: str,
        seeds: Sequence[int],
        exploratory_seeds: Sequence[int] = (),
        facts: Facts,
        sweeps: Sweeps | None = None,
    ) -> ResolvedArtifact:
        """Return the resolved config of one table or figure.

        Args:
            name: Name of the artifact.
            kind: "table" or "figure".
            scale: Name of the scale.
            seeds: Seeds to show.
            exploratory_seeds: Seeds that are excluded from tests.
            facts: Facts on the model of each run.
            sweeps: Learning rates of each swept run, for sections that show a sweep.

        Raises:
            ConfigError: An artifact, run or published table is unknown; the message offers the
                nearest known name.
        """
        self.check(name)
        artifact = self.artifacts[name]
        location = f"{self.location}/{name}.yaml"
        form = artifact.table if kind == "table" else artifact.figure
        if form is None:
            raise ConfigError(f"{location}: has no {kind}")
        sections = [
            self._section(section, facts, sweeps or {}, location) for section in artifact.sections
        ]
        return ResolvedArtifact(
            artifact=name,
            kind=kind,
            scale=scale,
            seeds=list(seeds),
            exploratory_seeds=list(exploratory_seeds),
            title=artifact.title,
            description=artifact.description,
            caption=form.caption,
            alt=form.alt,
            sections=sections,
            paper=_published(artifact, self.published(name), sections),
        )

    def _section(
        self, part: SectionConfig, facts: Facts, sweeps: Sweeps, location: str
    ) -> ResolvedSection:
        grid_rows = [self._grid_row(row, part) for row in part.rows]
        members = {grid_row.run: grid_row.members for grid_row in grid_rows}
        rows = [
            member
            for row, grid_row in zip(part.rows, grid_rows, strict=True)
            for member in self._rows(row, grid_row, members, facts, sweeps)
        ]
        # The scale sets the swept runs; the artifact only sets their order.
        swept = part.typed_options.swept
        swept_rows = [row for row in rows if not swept or row.run in sweeps]
        if not swept_rows:
            raise ConfigError(
                f"{location}: the scale sweeps none of {[row.run for row in rows]}; add them to "
                "`sweeps` in its file"
            )
        return ResolvedSection(
            title=part.title,
            evaluation=part.evaluation,
            options=part.typed_options,
            suites=part.suites,
            rows=swept_rows,
            grid_rows=grid_rows if part.size_grid is not None else [],
            sweep=[rate for row in swept_rows for rate in sweeps[row.run]] if swept else [],
            replications=[
                replication
                for replication in self.replications
                if replication.paper == part.typed_options.replicated
            ],
            judges=[judge for suite in part.suites for judge in self.judges.get(suite, ())],
        )

    def _grid_row(self, row: RowConfig, part: SectionConfig) -> ResolvedGridRow:
        """Resolve a row with its runs at all recipes of a size grid, or with its one run."""
        baseline, members = row.baseline or part.baseline, self.members(row.run, part.size_grid)
        changed = self._overrides(row.run, *members)
        return ResolvedGridRow(
            run=row.run,
            label=with_overrides(row.label or self.labels[row.run], changed),
            overrides=changed,
            baseline=None if baseline == row.run else baseline,
            color=self.color(row.run),
            members=members,
        )

    def _overrides(self, run: str, *behind: str) -> str:
        """Describe the overrides of a row's run and of the other runs that the row depends on."""
        changes = [self.overrides(run)]
        changes += [
            f"{other}: {changed}"
            for other in behind
            if other != run and (changed := self.overrides(other))
        ]
        return ", ".join(filter(None, changes))

    def _rows(
        self,
        row: RowConfig,
        grid_row: ResolvedGridRow,
        members: Mapping[str, list[str]],
        facts: Facts,
        sweeps: Sweeps,
    ) -> Iterator[ResolvedRow]:
        """Yield one row per recipe of the size grid, with its baseline at the same recipe."""
        none: Sequence[str | None] = [None] * len(grid_row.members)
        baseline = none if grid_row.baseline is None else members.get(grid_row.baseline, none)
        for run, other in zip(grid_row.members, baseline, strict=True):
            itself, run_facts = run == row.run, dict(facts.get(run, {}))
            swept = [rate.run_id for rate in sweeps.get(run, ())]
            paired_runs = [row.paired_run] if row.paired_run is not None and itself else []
            changed = self._overrides(run, *paired_runs, *swept)
            name = row.label if itself and row.label else self.labels[run]
            label = with_overrides(name, changed)
            yield ResolvedRow(
                run=run,
                label=label if run_facts.get(DEVIATION) is None else label + MARK,
                overrides=changed,
                baseline=other,
                facts=run_facts,
                paired_run=row.paired_run if itself else None,
                color=self.color(run),
                paper=row.paper if itself else None,
                pretrained=run in self.pretrained,
            )


def _published(
    artifact: ArtifactConfig, table: PaperTable | None, sections: Sequence[ResolvedSection]
) -> PaperTable | None:
    """Return the published table with its rows named after the runs of this project.

    Runs with overrides, and differences from them, have no published values.
    """
    if table is None:
        return None
    named = [(row.run, row.paper) for part in artifact.sections for row in part.rows]
    beside = {run: paper for run, paper in named if paper in table.rows}
    rows = {run: row for run, row in table.rows.items() if run not in beside.values()}
    rows |= {run: table.rows[paper] for run, paper in beside.items() if paper is not None}
    changed = {row.run for part in sections for row in part.rows if row.overrides}
    changed |= {row.run for part in sections for row in part.grid_rows if row.overrides}
    if not changed:
        return table.model_copy(update={"rows": rows})
    unchanged = {
        run: row.model_copy(
            update={
                "differences": {
                    column: difference
                    for column, difference in row.differences.items()
                    if difference.baseline not in changed
                }
            }
        )
        for run, row in rows.items()
        if run not in changed
    }
    return table.model_copy(update={"rows": unchanged})
