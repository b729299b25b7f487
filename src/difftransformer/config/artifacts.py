"""A table, a figure or both over the same rows, as configured in ``artifacts/<id>.yaml``.

A job gets an artifact as a `ResolvedArtifact` (see `difftransformer.config.resolved_artifacts`),
which refers to no other configuration.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import SerializeAsAny, model_validator

from difftransformer.config.base import Name, Settings, setting
from difftransformer.config.evaluation import Options
from difftransformer.config.evaluations import evaluation
from difftransformer.config.papers import TARGETS, PapersFile, PaperTable
from difftransformer.config.validation import validate
from difftransformer.config.yaml_files import read_yaml, yaml_files
from difftransformer.errors import ConfigError, lookup

Kind = Literal["table", "figure"]
ENDINGS: dict[Kind, tuple[str, ...]] = {
    "table": (".csv", ".md", ".tex", ".html", ".json"),
    "figure": (".svg", ".png"),
}
"""Suffixes of the files written for a table or figure; the report reads tables from .json."""


class RowConfig(Settings):
    """One row of a table or figure: a run, and the row that is its baseline."""

    run: str = setting(meaning="Run of runs.yaml that the row shows")
    label: str | None = setting(None, meaning="Name of the row; null: the label of the run")
    baseline: str | None = setting(
        None,
        meaning="Row whose value is subtracted, seed by seed, in the column of differences; "
        "null: the section's `baseline`",
    )
    paper: str | None = setting(
        None, meaning="Row of the published table beside it; null: that of the row's own run"
    )
    paired_run: str | None = setting(
        None, meaning="Run of the same architecture on another task, shown in the same row"
    )


class SectionConfig(Settings):
    """A group of rows of a table or figure that share their columns or panel."""

    title: str = setting(meaning="Heading of the section")
    evaluation: Name = setting(
        meaning="Folder of difftransformer.evaluations that makes its columns and its panels"
    )
    options: SerializeAsAny[Options] | dict[str, Any] = setting(
        {}, meaning="Options of the evaluation, see its settings"
    )
    suites: list[str] = setting(
        [], meaning="Evaluation suites of evaluations.yaml that every row of the section needs"
    )
    rows: list[RowConfig] = setting(meaning="Rows from top to bottom", min_length=1)
    size_grid: str | None = setting(
        None, meaning="Size grid of the scale: each row becomes a run per recipe of the grid"
    )
    baseline: str | None = setting(
        None, meaning="Row with which the others are compared; null: no column of differences"
    )

    @property
    def typed_options(self) -> Options:
        """Options of the section, as an instance of its evaluation's ``Options`` class."""
        assert isinstance(self.options, Options), self.title
        return self.options

    @model_validator(mode="after")
    def _references_are_rows(self) -> Self:
        runs = [row.run for row in self.rows]
        if len(set(runs)) < len(runs):
            raise ValueError(f"a run stands twice among the rows {runs}")
        for baseline in (self.baseline, *(row.baseline for row in self.rows)):
            if baseline is not None and baseline not in runs:
                raise ValueError(f"baseline: '{baseline}' is none of the rows {runs}")
        return self


class FormConfig(Settings):
    """Caption and alternative text of a table or a figure."""

    caption: str = setting(meaning="Text that stands with it")
    alt: str = setting("", meaning="What the picture shows, for those who cannot see it")


class ArtifactConfig(Settings):
    """A table, a figure, or both over the same rows: one file of ``config/artifacts``."""

    title: str = setting(meaning="Heading in the report")
    description: str = setting(meaning="One line, shown by `snakemake --list-target-rules`")
    sections: list[SectionConfig] = setting(meaning="Groups of rows", min_length=1)
    table: FormConfig | None = setting(None, meaning="The table; null: there is none")
    figure: FormConfig | None = setting(
        None, meaning="The figure, drawn by the first section's evaluation; null: there is none"
    )
    owned_runs: list[str] = setting(
        [], meaning="Runs that only this artifact needs; rerunning it trains exactly these"
    )
    paper: PaperTable | str | None = setting(
        None, meaning="Published numbers beside ours, or the artifact that has them"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.table is None and self.figure is None:
            raise ValueError("an artifact needs a table, a figure or both")
        foreign = set(self.owned_runs) - set(self.runs())
        if foreign:
            raise ValueError(f"owned_runs are not among the rows: {sorted(foreign)}")
        return self

    @property
    def tunes(self) -> bool:
        """Whether the artifact only shows how learning rates were chosen."""
        return all(part.typed_options.tuning for part in self.sections)

    def runs(self) -> list[str]:
        """Return the runs that the rows name; size grids and sweeps add other runs."""
        rows = [row for part in self.sections for row in part.rows]
        named = [name for row in rows for name in (row.run, row.paired_run) if name is not None]
        return list(dict.fromkeys(named))


def read_artifacts(folder: Path, papers: PapersFile) -> dict[str, ArtifactConfig]:
    """Return all artifacts by name: first the papers' artifacts in their order, then the others.

    Args:
        folder: Folder of the artifacts' YAML files.
        papers: The papers, whose names artifacts may refer to.

    Raises:
        ConfigError: A file is not valid, or names an unknown paper.
    """
    paths = yaml_files(folder)
    if not paths:
        raise ConfigError(f"{folder}: no artifacts; restore it or name another folder")
    printed = [item.artifact for paper in papers.papers.values() for item in paper.items]
    order = dict.fromkeys([name for name in printed if name in paths]) | dict.fromkeys(paths)
    artifacts = {}
    for name in order:
        if not re.fullmatch(r"\w{1,100}", name, re.ASCII):
            raise ConfigError(f"{paths[name]}: a name has letters, digits and _ alone; rename it")
        if reserved := "a paper" if name in papers.papers else TARGETS.get(name):
            raise ConfigError(f"{paths[name]}: {name} is the name of {reserved}; rename the file")
        artifacts[name] = typed_artifact(read_yaml(paths[name]), str(paths[name]))
        for index, part in enumerate(artifacts[name].sections):
            if part.typed_options.replicated is not None:
                location = f"{paths[name]}: sections[{index}].options"
                lookup(papers.papers, part.typed_options.replicated, "paper", location)
    return artifacts


def typed_artifact(raw: Mapping[str, Any], location: str) -> ArtifactConfig:
    """Return an artifact whose sections have options typed by their evaluations.

    Args:
        raw: Content of the artifact's YAML file.
        location: Path of that file, for error messages.

    Raises:
        ConfigError: The artifact is not valid; one line that begins with ``location``.
    """
    artifact = validate(ArtifactConfig, raw, location)
    sections = [
        _typed_section(part, f"{location}: sections[{index}]")
        for index, part in enumerate(artifact.sections)
    ]
    for key, function, parts in (
        ("table", "section", sections),
        ("figure", "figure", sections[:1]),
    ):
        for name in (part.evaluation for part in parts if getattr(artifact, key)):
            if function not in evaluation(name).makes:
                raise ConfigError(
                    f"{location}: {key}: evaluation {name} makes none, its report.py has no "
                    f"{function}(context); remove the key or write that function"
                )
    return artifact.model_copy(update={"sections": sections})


def _typed_section(part: SectionConfig, location: str) -> SectionConfig:
    definition = evaluation(part.evaluation, f"{location}.evaluation")
    options = validate(definition.options, part.options, f"{location}.options")
    if len(part.suites) != options.suites:
        number = {0: "none", 1: "exactly one"}.get(options.suites, str(options.suites))
        raise ConfigError(
            f"{location}.suites: evaluation {definition.name} reads {number}, got {part.suites}"
        )
    for index, row in enumerate(part.rows):
        if (row.paired_run is not None) != options.paired:
            needs = "needs" if options.paired else "has no use for"
            raise ConfigError(
                f"{location}.rows[{index}].paired_run: evaluation {definition.name} {needs} one"
            )
    if options.needs_size_grid and part.size_grid is None:
        raise ConfigError(f"{location}.size_grid: evaluation {definition.name} needs one")
    return part.model_copy(update={"options": options})
