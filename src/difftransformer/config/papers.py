"""The tables and figures of the papers, and which artifact rebuilds each."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import model_validator

from difftransformer.config.artifacts import ArtifactConfig
from difftransformer.config.base import Settings, setting
from difftransformer.config.validation import lookup
from difftransformer.errors import ConfigError

State = Literal[
    "built here", "not in this report", "needs scale", "needs a judge", "nothing to measure"
]


class PaperItem(Settings):
    """One table or figure of a paper."""

    item: str = setting(meaning="Its number, as printed, such as Table 6")
    shows: str = setting(meaning="What it shows, in a few words")
    artifact: str | None = setting(
        None, meaning="Artifact that rebuilds it; null: there is nothing to rebuild"
    )
    reason: str | None = setting(None, meaning="Why nothing rebuilds it; only without an artifact")

    @model_validator(mode="after")
    def _rebuilt_or_explained(self) -> Self:
        if (self.artifact is None) == (self.reason is None):
            raise ValueError(f"{self.item}: give either an artifact or a reason for none")
        return self


class PaperConfig(Settings):
    """A paper with everything that it prints."""

    title: str = setting(meaning="Title and year of the paper")
    source: str = setting(meaning="Where it is published")
    items: list[PaperItem] = setting(
        meaning="Every table and figure of it, in the order of their numbers", min_length=1
    )


class PapersFile(Settings):
    """``config/papers.yaml``: what there is to rebuild, so that nothing is missing silently."""

    papers: dict[str, PaperConfig] = setting(meaning="Papers by a short name")


class ItemStatus(Settings):
    """What has become of one table or figure in a report."""

    item: str = setting(meaning="Its number")
    shows: str = setting(meaning="What it shows")
    artifact: str | None = setting(None, meaning="Artifact that rebuilds it")
    states: list[State] = setting(meaning="What has become of it")
    words: str = setting("", meaning="What is missing, and how to get it")


class PaperStatus(Settings):
    """What has become of a paper's tables and figures."""

    title: str = setting(meaning="Title and year of the paper")
    source: str = setting(meaning="Where it is published")
    items: list[ItemStatus] = setting(meaning="One line for each table and figure")


def check_papers(papers: PapersFile, artifacts: Mapping[str, ArtifactConfig], place: str) -> None:
    """Check that the artifacts named exist, and that a paper's own name is no artifact's.

    Raises:
        ConfigError: One line with the key path, the unknown name and the nearest one.
    """
    for name, paper in papers.papers.items():
        if name in {"headline", "all", "sweeps", *artifacts}:
            raise ConfigError(f"{place}: papers.{name}: a target has this name; rename the paper")
        for index, item in enumerate(paper.items):
            if item.artifact is not None:
                where = f"{place}: papers.{name}.items[{index}]"
                lookup(artifacts, item.artifact, "artifact", where)
