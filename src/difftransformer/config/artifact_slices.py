"""What a reporting job gets: rows with labels, published values and claims, all resolved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from difftransformer.config.artifacts import (
    ArtifactConfig,
    ClaimConfig,
    Kind,
    PaperTable,
    SectionConfig,
)
from difftransformer.config.base import Settings, setting
from difftransformer.config.validation import lookup, nearest
from difftransformer.errors import ConfigError

Fact = int | float | bool | str | None
Facts = Mapping[str, Fact]


class RowSlice(Settings):
    """One resolved row."""

    run: str = setting(meaning="Run whose results the row shows")
    label: str = setting(meaning="Name of the row")
    against: str | None = setting(None, meaning="Run it is compared with; null: none")
    facts: dict[str, Fact] = setting(
        {}, meaning="What the model is: heads, head_dim, norm; shown as columns, not measured"
    )
    pretrained: bool = setting(
        False, meaning="Whether the model comes from elsewhere: one result stands for all seeds"
    )


class SweepRow(Settings):
    """One learning rate of one swept run."""

    run: str = setting(meaning="Run whose learning rate is swept")
    run_id: str = setting(meaning="Run that trained with this learning rate")
    learning_rate: float = setting(meaning="Peak learning rate of run_id", gt=0)
    chosen: bool = setting(meaning="Whether the configuration gives `run` this learning rate")


class SectionSlice(Settings):
    """One section with its resolved rows; ``sweep`` is filled for measures: learning_rate."""

    title: str = setting(meaning="Heading")
    measures: str = setting(meaning="Set of columns")
    suites: list[str] = setting(meaning="Evaluation suites the section reads")
    rows: list[RowSlice] = setting(meaning="Rows from top to bottom")
    sweep: list[SweepRow] = setting([], meaning="Learning rates of the rows")
    needles: list[int] = setting(meaning="Numbers of pairs N with a column of accuracy")
    metric: str | None = setting(None, meaning="Metric of a sweep")
    better: str = setting("lower", meaning="Whether a lower or a higher metric is better")


class ArtifactSlice(Settings):
    """A table or a figure, resolved."""

    artifact: str = setting(meaning="Id of the artifact")
    kind: Kind = setting(meaning="table or figure")
    builder: str = setting(meaning="Module that makes it")
    scale: str = setting(meaning="Scale of every result it reads")
    seeds: list[int] = setting(meaning="Seeds of every row")
    title: str = setting(meaning="Heading")
    description: str = setting(meaning="One line on what it is")
    caption: str = setting(meaning="Text that stands with it")
    alt: str = setting("", meaning="What the picture shows, in words")
    sections: list[SectionSlice] = setting(meaning="Groups of rows")
    paper: PaperTable | None = setting(None, meaning="Published numbers beside ours")
    claims: dict[str, ClaimConfig] = setting({}, meaning="Claims it judges, by id")


class ReportSlice(Settings):
    """The report: which artifacts it shows and how to rebuild it."""

    scale: str = setting(meaning="Scale of everything in the report")
    scale_description: str = setting(meaning="What the scale is for")
    seeds: list[int] = setting(meaning="Seeds of every run")
    tables: list[ArtifactSlice] = setting(meaning="Tables to show, in order")
    figures: list[ArtifactSlice] = setting(meaning="Figures to show beside the tables")
    commands: dict[str, str] = setting(
        {}, meaning="Commands that rebuild things, by what each one does"
    )


@dataclass(frozen=True)
class Declarations:
    """What the files under ``config/`` declare about artifacts, and the runs they may name."""

    artifacts: Mapping[str, ArtifactConfig]
    claims: Mapping[str, ClaimConfig]
    paper: Mapping[str, PaperTable]
    labels: Mapping[str, str]
    """Run id -> label, of every run there is."""
    place: str = "config/artifacts.yaml"
    """The file of the artifacts, for errors."""
    pretrained: frozenset[str] = frozenset()
    """Runs that are models from elsewhere."""


def slice_artifact(
    declared: Declarations,
    name: str,
    kind: Kind,
    *,
    scale: str,
    seeds: Sequence[int],
    facts: Mapping[str, Facts],
    sweeps: Mapping[str, Sequence[SweepRow]] | None = None,
) -> ArtifactSlice:
    """Resolve one table or figure.

    Args:
        declared: The content of the configuration files.
        name: Id in artifacts.yaml.
        kind: Which of its two forms.
        scale: Name of the scale.
        seeds: Seeds of every row.
        facts: Run id -> what the model is (heads, head_dim, norm); runs not in it show none.
        sweeps: Swept run -> its learning rates, for sections with measures: learning_rate.

    Raises:
        ConfigError: an unknown artifact, run, claim or published table; offers the nearest name.
    """
    check_artifact(declared, name)
    artifact = declared.artifacts[name]
    where = f"{declared.place}: artifacts.{name}"
    form = artifact.table if kind == "table" else artifact.figure
    if form is None:
        raise ConfigError(f"{where}: has no {kind}")
    return ArtifactSlice(
        artifact=name,
        kind=kind,
        builder=form.builder,
        scale=scale,
        seeds=list(seeds),
        title=artifact.title,
        description=artifact.description,
        caption=form.caption,
        alt=form.alt,
        sections=[
            _section(part, declared, facts, sweeps or {}, where) for part in artifact.sections
        ],
        paper=None if artifact.paper is None else declared.paper[artifact.paper],
        claims={claim: declared.claims[claim] for claim in artifact.claims},
    )


def check_artifact(declared: Declarations, name: str) -> None:
    """Check that everything an artifact names exists.

    Raises:
        ConfigError: one line with the key path, the unknown name and the nearest one.
    """
    artifact = lookup(declared.artifacts, name, "artifact", declared.place)
    where = f"{declared.place}: artifacts.{name}"
    for index, part in enumerate(artifact.sections):
        for number, row in enumerate(part.rows):
            lookup(declared.labels, row.run, "run", f"{where}.sections[{index}].rows[{number}].run")
    if artifact.paper is not None:
        lookup(declared.paper, artifact.paper, "published table", f"{where}.paper")
    for claim_id in artifact.claims:
        claim = lookup(declared.claims, claim_id, "claim", f"{where}.claims")
        lookup(declared.artifacts, claim.artifact, "artifact", f"claims.{claim_id}.artifact")
        for key, run in (("row", claim.row), ("against", claim.against)):
            if run not in artifact.runs():
                raise ConfigError(
                    f"{where}.claims: {claim_id} is about {key} '{run}', which is none of its rows"
                    f"{nearest(run, artifact.runs())}"
                )


def _section(
    part: SectionConfig,
    declared: Declarations,
    facts: Mapping[str, Facts],
    sweeps: Mapping[str, Sequence[SweepRow]],
    where: str,
) -> SectionSlice:
    swept = part.measures == "learning_rate"
    # The scale decides what is swept; the artifact only orders it.
    shown = [row for row in part.rows if not swept or row.run in sweeps]
    if not shown:
        raise ConfigError(
            f"{where}: the scale sweeps none of {[row.run for row in part.rows]}; add them to "
            "`sweeps` in its file"
        )
    rows = [
        RowSlice(
            run=row.run,
            label=row.label or declared.labels[row.run],
            against=_against(row.against or part.against, row.run),
            facts=dict(facts.get(row.run, {})),
            pretrained=row.run in declared.pretrained,
        )
        for row in shown
    ]
    return SectionSlice(
        title=part.title,
        measures=part.measures,
        suites=part.suites,
        rows=rows,
        sweep=[rate for row in shown for rate in sweeps[row.run]] if swept else [],
        needles=part.needles,
        metric=part.metric,
        better=part.better,
    )


def _against(reference: str | None, run: str) -> str | None:
    return None if reference == run else reference
