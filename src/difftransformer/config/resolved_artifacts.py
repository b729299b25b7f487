"""Resolved configs of reporting jobs: rows with labels, published values, claims."""

from typing import Any

from pydantic import SerializeAsAny, model_validator

from difftransformer.config.artifacts import Kind
from difftransformer.config.base import Name, Settings, setting
from difftransformer.config.evaluation import Fact, Options
from difftransformer.config.evaluations import evaluation
from difftransformer.config.papers import PaperStatus, PaperTable, Replication
from difftransformer.config.registry import Claim
from difftransformer.config.validation import validate


def with_overrides(label: str, overrides: str) -> str:
    """Return the label of a row with its overridden settings appended."""
    return f"{label} (overrides: {overrides})" if overrides else label


DEVIATION, MARK = "deviation_from_paper", " *"
"""Key of the fact that a row's model deviates from the paper, and the mark on such a row's label.

A model deviates where its paper leaves something open."""


class ResolvedRow(Settings):
    """One row of a table or figure, with its label, baseline and facts resolved."""

    run: str = setting(meaning="Run whose results the row shows")
    label: str = setting(meaning="Name of the row")
    overrides: str = setting("", meaning="What `overrides` changes of the run; empty: nothing")
    baseline: str | None = setting(None, meaning="Run it is compared with; null: none")
    facts: dict[str, Fact] = setting(
        {}, meaning="What the model is, such as heads and head_dim; shown, not measured"
    )
    paired_run: str | None = setting(None, meaning="Same architecture on another task; null: none")
    color: int | None = setting(None, meaning="Number of its color; null: any that is free")
    paper: str | None = setting(
        None, meaning="Row it stands for: of the published table, or another's at larger scales"
    )
    pretrained: bool = setting(
        False, meaning="Whether the model is pretrained: one result counts for all seeds"
    )


class ResolvedGridRow(Settings):
    """One row of a section with a size grid: a run at every recipe, smallest first."""

    run: str = setting(meaning="Run that the row of artifacts.yaml names")
    label: str = setting(meaning="Name of the row")
    overrides: str = setting("", meaning="What `overrides` changes of its members; empty: nothing")
    baseline: str | None = setting(None, meaning="Run it is compared with; null: none")
    color: int | None = setting(None, meaning="Number of its color; null: any that is free")
    members: list[str] = setting(meaning="Runs of the size grid, among the rows of the section")


class SweepRow(Settings):
    """One learning rate of a run in a sweep."""

    run: str = setting(meaning="Run whose learning rate is swept")
    run_id: str = setting(meaning="Run that trained with this learning rate")
    learning_rate: float = setting(meaning="Peak learning rate of run_id", gt=0)
    chosen: bool = setting(meaning="Whether the configuration gives `run` this learning rate")


class ResolvedSection(Settings):
    """One section with its resolved rows; ``sweep`` is not empty if learning rates are swept."""

    title: str = setting(meaning="Heading")
    evaluation: Name = setting(meaning="What makes its columns and panels")
    options: SerializeAsAny[Options] = setting(meaning="What the evaluation is told")
    suites: list[str] = setting(meaning="Evaluation suites the section reads")
    rows: list[ResolvedRow] = setting(meaning="Rows from top to bottom")
    grid_rows: list[ResolvedGridRow] = setting(
        [], meaning="Rows of a section with a size grid; `rows` then has a run per recipe"
    )
    sweep: list[SweepRow] = setting([], meaning="Learning rates of the rows")
    replications: list[Replication] = setting(
        [], meaning="What others found of the difference that the section is about"
    )
    judges: list[str] = setting(
        [],
        meaning="Who judges what the suite generates; columns without a judge's name are the "
        "first one's",
    )

    @model_validator(mode="before")
    @classmethod
    def _typed_options(cls, raw: Any) -> Any:
        if not isinstance(raw, dict) or not isinstance(raw.get("options"), dict):
            return raw
        options = evaluation(str(raw.get("evaluation"))).options
        return raw | {"options": validate(options, raw["options"], "options")}


class ResolvedArtifact(Settings):
    """Resolved config of the job that makes one table or figure."""

    artifact: str = setting(meaning="Id of the artifact")
    kind: Kind = setting(meaning="table or figure")
    scale: str = setting(meaning="Scale of every result it reads")
    seeds: list[int] = setting(meaning="Seeds of every row")
    exploratory_seeds: list[int] = setting([], meaning="Seeds that test no claim")
    title: str = setting(meaning="Heading")
    description: str = setting(meaning="One line on what it is")
    caption: str = setting(meaning="Text that stands with it")
    alt: str = setting("", meaning="What the picture shows, in words")
    sections: list[ResolvedSection] = setting(meaning="Groups of rows")
    paper: PaperTable | None = setting(None, meaning="Published numbers beside ours")

    @property
    def overrides(self) -> dict[str, str]:
        """Description of the overridden settings of each run that has any."""
        rows = {
            row.run: row.overrides for part in self.sections for row in part.rows if row.overrides
        }
        grid_rows = (grid_row for part in self.sections for grid_row in part.grid_rows)
        return rows | {
            grid_row.run: grid_row.overrides for grid_row in grid_rows if grid_row.overrides
        }


class RunDisplay(Settings):
    """Label, base and color with which the report shows a run."""

    label: str = setting(meaning="Name for readers")
    base: str | None = setting(None, meaning="Run that it changes; null: none")
    color: int | None = setting(None, meaning="Number of its color; null: any that is free")


class EarlierArtifact(Settings):
    """A table or figure that an earlier call built and this call did not request."""

    artifact: str = setting(meaning="Id of the artifact")
    table: str | None = setting(None, meaning="Its table as JSON; null: it has none")
    figure: str | None = setting(None, meaning="Its picture as SVG; null: it has none")
    results: list[str] = setting(meaning="Result files behind it that are there")


class TestedClaims(Settings):
    """Resolved config of the job that tests the registered claims at a scale."""

    scale: str = setting(meaning="Scale of the results")
    alpha: float = setting(meaning="Error rate of a family")
    note: str = setting(meaning="What had been seen when the claims were registered")
    claims: dict[str, Claim] = setting(meaning="All claims, by id")
    digests: dict[str, str] = setting(meaning="Digest of the definition of each claim")
    not_testable: dict[str, str] = setting(
        {}, meaning="Claims that the scale cannot test whatever comes out, with the reason"
    )
    tables: list[ResolvedArtifact] = setting(meaning="Tables with the numbers of the claims")
    earlier_results: dict[str, list[str]] = setting(
        {}, meaning="Result files by table, for tables that only an earlier call built"
    )

    @property
    def families(self) -> dict[str, list[str]]:
        """Ids of the testable claims by family; one Holm correction covers each family."""
        by_family: dict[str, list[str]] = {}
        for name, claim in self.claims.items():
            if claim.test is not None and name not in self.not_testable:
                by_family.setdefault(claim.family, []).append(name)
        return by_family


class ReportConfig(Settings):
    """Resolved config of the report job: the artifacts to show, and commands that rebuild them."""

    scale: str = setting(meaning="Scale of everything in the report")
    scale_description: str = setting(meaning="What the scale is for")
    seeds: list[int] = setting(meaning="Seeds of every run")
    contents: list[PaperStatus] = setting(
        [], meaning="What has become of every table and figure of the papers"
    )
    tables: list[ResolvedArtifact] = setting(meaning="Tables to show, in order")
    figures: list[ResolvedArtifact] = setting(meaning="Figures to show beside the tables")
    earlier: list[EarlierArtifact] = setting(
        [], meaning="Those of these artifacts that this call did not ask for"
    )
    runs: dict[str, RunDisplay] = setting({}, meaning="Runs behind the artifacts")
    papers: dict[str, str] = setting({}, meaning="Titles of the papers by their short names")
    commands: dict[str, str] = setting({}, meaning="Command that rebuilds each artifact")
    command: str = setting("", meaning="Command that builds what was asked for")
    config_option: str = setting(
        "", meaning="What a command that rebuilds a file has to give --config"
    )
