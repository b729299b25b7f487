"""What a reporting job gets: rows with labels, published values and claims, all resolved."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import SerializeAsAny, model_validator

from difftransformer.config.artifacts import ArtifactConfig, ClaimConfig, Kind, SectionConfig
from difftransformer.config.base import Name, Settings, setting
from difftransformer.config.measurement import Fact, Options
from difftransformer.config.measurements import measurement
from difftransformer.config.papers import PaperStatus, PaperTable
from difftransformer.config.validation import lookup, nearest, validate
from difftransformer.errors import ConfigError

Facts = Mapping[str, Fact]
INTERPRETATION, MARK = "interpretation", " *"
"""Fact of a row whose source leaves something open, and what its label ends in for that."""


class RowSlice(Settings):
    """One resolved row."""

    run: str = setting(meaning="Run whose results the row shows")
    label: str = setting(meaning="Name of the row")
    against: str | None = setting(None, meaning="Run it is compared with; null: none")
    facts: dict[str, Fact] = setting(
        {}, meaning="What the model is, such as heads and head_dim; shown, not measured"
    )
    twin: str | None = setting(None, meaning="Its twin on another task; null: none")
    paper: str | None = setting(
        None, meaning="Row it stands for: of the published table, or another's at larger scales"
    )
    pretrained: bool = setting(
        False, meaning="Whether the model comes from elsewhere: one result stands for all seeds"
    )


class FamilySlice(Settings):
    """One row of a section with a family: a run at every setup, from the smallest on."""

    run: str = setting(meaning="Run that the row of artifacts.yaml names")
    label: str = setting(meaning="Name of the row")
    against: str | None = setting(None, meaning="Run it is compared with; null: none")
    members: list[str] = setting(meaning="Runs of the family, among the rows of the section")


class SweepRow(Settings):
    """One learning rate of one swept run."""

    run: str = setting(meaning="Run whose learning rate is swept")
    run_id: str = setting(meaning="Run that trained with this learning rate")
    learning_rate: float = setting(meaning="Peak learning rate of run_id", gt=0)
    chosen: bool = setting(meaning="Whether the configuration gives `run` this learning rate")


class SectionSlice(Settings):
    """One section with its resolved rows; ``sweep`` is filled where rates are swept."""

    title: str = setting(meaning="Heading")
    measurement: Name = setting(meaning="What makes its columns and panels")
    options: SerializeAsAny[Options] = setting(meaning="What the measurement is told")
    suites: list[str] = setting(meaning="Evaluation suites the section reads")
    rows: list[RowSlice] = setting(meaning="Rows from top to bottom")
    families: list[FamilySlice] = setting(
        [], meaning="Rows of a section with a family; `rows` then has a run for each of its setups"
    )
    sweep: list[SweepRow] = setting([], meaning="Learning rates of the rows")
    judges: list[str] = setting(
        [], meaning="Who judges what the suite generates; claims are about the first one's verdicts"
    )

    @model_validator(mode="before")
    @classmethod
    def _typed_options(cls, raw: Any) -> Any:
        if not isinstance(raw, dict) or not isinstance(raw.get("options"), dict):
            return raw
        options = measurement(str(raw.get("measurement"))).options
        return raw | {"options": validate(options, raw["options"], "options")}


class ClaimSlice(ClaimConfig):
    """A claim with the artifact that declares it."""

    artifact: str = setting(meaning="Artifact that judges it; others may show it too")


class ArtifactSlice(Settings):
    """A table or a figure, resolved."""

    artifact: str = setting(meaning="Id of the artifact")
    kind: Kind = setting(meaning="table or figure")
    scale: str = setting(meaning="Scale of every result it reads")
    seeds: list[int] = setting(meaning="Seeds of every row")
    title: str = setting(meaning="Heading")
    description: str = setting(meaning="One line on what it is")
    caption: str = setting(meaning="Text that stands with it")
    alt: str = setting("", meaning="What the picture shows, in words")
    sections: list[SectionSlice] = setting(meaning="Groups of rows")
    paper: PaperTable | None = setting(None, meaning="Published numbers beside ours")
    claims: dict[str, ClaimSlice] = setting({}, meaning="Claims it judges, by id")


class ReportSlice(Settings):
    """The report: which artifacts it shows and how to rebuild it."""

    scale: str = setting(meaning="Scale of everything in the report")
    scale_description: str = setting(meaning="What the scale is for")
    seeds: list[int] = setting(meaning="Seeds of every run")
    contents: list[PaperStatus] = setting(
        [], meaning="What has become of every table and figure of the papers"
    )
    tables: list[ArtifactSlice] = setting(meaning="Tables to show, in order")
    figures: list[ArtifactSlice] = setting(meaning="Figures to show beside the tables")
    commands: dict[str, str] = setting(
        {}, meaning="Commands that rebuild things, by what each one does"
    )


@dataclass(frozen=True)
class Declarations:
    """What the files under ``config/`` declare about artifacts, and the runs they may name."""

    artifacts: Mapping[str, ArtifactConfig]
    labels: Mapping[str, str]
    """Run id -> label, of every run there is."""
    place: str = "config/artifacts"
    """The folder of the artifacts, for errors."""
    pretrained: frozenset[str] = frozenset()
    """Runs that are models from elsewhere."""
    judges: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Suite -> who judges what it generates, of the suites that generate something to judge."""

    def claim(self, name: str) -> ClaimSlice:
        """Return a claim with the artifact that declares it; there is one."""
        owner, claim = next(
            (owner, one.claims[name]) for owner, one in self.artifacts.items() if name in one.claims
        )
        return ClaimSlice(artifact=owner, **claim.model_dump())

    def published(self, name: str) -> PaperTable | None:
        """Return the published numbers of an artifact, its own or those it shares."""
        paper = self.artifacts[name].paper
        return self.published(paper) if isinstance(paper, str) else paper


Members = Callable[[str, str | None], list[str]]
"""Gives the runs of a row's run at every setup of a family; without a family the run alone."""
Sweeps = Mapping[str, Sequence[SweepRow]]
"""Swept run -> its learning rates."""


def _alone(run: str, family: str | None) -> list[str]:
    assert family is None, f"family {family} of {run} without its members"
    return [run]


def slice_artifact(
    declared: Declarations,
    name: str,
    kind: Kind,
    *,
    scale: str,
    seeds: Sequence[int],
    facts: Mapping[str, Facts],
    sweeps: Sweeps | None = None,
    members: Members = _alone,
) -> ArtifactSlice:
    """Resolve one table or figure.

    Args:
        declared: The content of the configuration files.
        name: Id in artifacts.yaml.
        kind: Which of its two forms.
        scale: Name of the scale.
        seeds: Seeds of every row.
        facts: Run id -> what the model is (heads, head_dim, norm); runs not in it show none.
        sweeps: Swept run -> its learning rates, for sections of a sweep.
        members: Run and family -> its runs, for sections with a family.

    Raises:
        ConfigError: an unknown artifact, run, claim or published table; offers the nearest name.
    """
    check_artifact(declared, name)
    artifact = declared.artifacts[name]
    where = f"{declared.place}/{name}.yaml"
    form = artifact.table if kind == "table" else artifact.figure
    if form is None:
        raise ConfigError(f"{where}: has no {kind}")
    return ArtifactSlice(
        artifact=name,
        kind=kind,
        scale=scale,
        seeds=list(seeds),
        title=artifact.title,
        description=artifact.description,
        caption=form.caption,
        alt=form.alt,
        sections=[
            _section(part, declared, facts, sweeps or {}, members, where)
            for part in artifact.sections
        ],
        paper=_published(artifact, declared.published(name)),
        claims={one: declared.claim(one) for one in (*artifact.claims, *artifact.shows_claims)},
    )


def _published(artifact: ArtifactConfig, table: PaperTable | None) -> PaperTable | None:
    """Return the published table with its rows named by the runs that stand beside them."""
    if table is None:
        return None
    named = [(row.run, row.paper) for part in artifact.sections for row in part.rows]
    beside = {run: paper for run, paper in named if paper in table.rows}
    rows = {run: row for run, row in table.rows.items() if run not in beside.values()}
    rows |= {run: table.rows[paper] for run, paper in beside.items() if paper is not None}
    return table.model_copy(update={"rows": rows})


def check_artifact(declared: Declarations, name: str) -> None:
    """Check that everything an artifact names exists.

    Raises:
        ConfigError: one line with the key path, the unknown name and the nearest one.
    """
    artifact = lookup(declared.artifacts, name, "artifact", declared.place)
    where = f"{declared.place}/{name}.yaml"
    for index, part in enumerate(artifact.sections):
        for number, row in enumerate(part.rows):
            place = f"{where}: sections[{index}].rows[{number}]"
            lookup(declared.labels, row.run, "run", f"{place}.run")
            if row.twin is not None:
                lookup(declared.labels, row.twin, "run", f"{place}.twin")
    if isinstance(artifact.paper, str):
        known = declared.artifacts.items()
        with_values = {key: one for key, one in known if isinstance(one.paper, PaperTable)}
        lookup(with_values, artifact.paper, "artifact with published values", f"{where}: paper")
    for claim_id in (*artifact.claims, *artifact.shows_claims):
        claim = declared.claim(claim_id)
        for key, run in (("row", claim.row), ("against", claim.against)):
            if isinstance(run, str) and run not in artifact.runs():
                raise ConfigError(
                    f"{where}: claims.{claim_id}.{key}: '{run}' is none of its rows"
                    f"{nearest(run, artifact.runs())}"
                )


def _section(
    part: SectionConfig,
    declared: Declarations,
    facts: Mapping[str, Facts],
    sweeps: Sweeps,
    members: Members,
    where: str,
) -> SectionSlice:
    families = _families(part, declared, members)
    others = {one.run: one.members for one in families}
    own = {row.run: {"twin": row.twin, "paper": row.paper} for row in part.rows}
    rows = [
        row.model_copy(update=own.get(row.run, {}))
        for family in families
        for row in _rows(family, others, declared, facts)
    ]
    # The scale decides what is swept; the artifact only orders it.
    swept = part.asked.swept
    shown = [row for row in rows if not swept or row.run in sweeps]
    if not shown:
        raise ConfigError(
            f"{where}: the scale sweeps none of {[row.run for row in rows]}; add them to "
            "`sweeps` in its file"
        )
    return SectionSlice(
        title=part.title,
        measurement=part.measurement,
        options=part.asked,
        suites=part.suites,
        rows=shown,
        families=families if part.family is not None else [],
        sweep=[rate for row in shown for rate in sweeps[row.run]] if swept else [],
        judges=[judge for suite in part.suites for judge in declared.judges.get(suite, ())],
    )


def _families(part: SectionConfig, declared: Declarations, members: Members) -> list[FamilySlice]:
    """Every row with its runs; without a family that is the one it names."""
    return [
        FamilySlice(
            run=row.run,
            label=row.label or declared.labels[row.run],
            against=None if (other := row.against or part.against) == row.run else other,
            members=members(row.run, part.family),
        )
        for row in part.rows
    ]


def _rows(
    family: FamilySlice,
    others: Mapping[str, list[str]],
    declared: Declarations,
    facts: Mapping[str, Facts],
) -> Iterator[RowSlice]:
    """Runs of a family as rows, each compared with the other row's run at the same setup."""
    none: Sequence[str | None] = [None] * len(family.members)
    against = none if family.against is None else others.get(family.against, none)
    for run, other in zip(family.members, against, strict=True):
        label = family.label if run == family.run else declared.labels[run]
        known = facts.get(run, {})
        marked = label if known.get(INTERPRETATION) is None else label + MARK
        elsewhere = run in declared.pretrained
        yield RowSlice(
            run=run, label=marked, against=other, facts=dict(known), pretrained=elsewhere
        )
