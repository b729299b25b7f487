"""What the papers print: every table and figure with the artifact that rebuilds it, and numbers.

Published numbers stand beside ours, and are never an input to them.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Literal, Self

from pydantic import model_validator

from difftransformer.config.base import Settings, setting
from difftransformer.config.validation import lookup
from difftransformer.errors import ConfigError

Number = int | float | bool | None
State = Literal[
    "built here", "not in this report", "needs scale", "needs a judge", "nothing to measure"
]


class PaperRow(Settings):
    """One published row."""

    label: str = setting(meaning="Name of the row as printed")
    values: dict[str, Number] = setting(meaning="Published values by column id")


class PaperSeries(Settings):
    """One published curve."""

    label: str = setting(meaning="Name of the curve as printed")
    x: list[float] = setting(meaning="Horizontal values, ascending", min_length=1)
    y: list[float] = setting(meaning="Vertical values, one for each x", min_length=1)

    @model_validator(mode="after")
    def _is_a_curve(self) -> Self:
        if len(self.x) != len(self.y):
            raise ValueError(f"{len(self.x)} values of x, but {len(self.y)} of y")
        if any(one >= two for one, two in pairwise(self.x)):
            raise ValueError(f"x must ascend, got {self.x}")
        return self


class PaperTable(Settings):
    """A published table or figure: stands beside our numbers, and is never an input to them."""

    title: str = setting(meaning="What the published table or figure is")
    source: str = setting(meaning="Document and number of the table or figure")
    scale: str = setting(meaning="Model size and tokens behind the numbers")
    rows: dict[str, PaperRow] = setting(
        {}, meaning="Published rows by the run, or the row of the artifact, that rebuilds them"
    )
    x: str | None = setting(None, meaning="What the x of the series are, with their unit")
    y: str | None = setting(None, meaning="What the y of the series are, with their unit")
    series: dict[str, PaperSeries] = setting(
        {}, meaning="Published curves by the run that rebuilds them"
    )
    notes: list[str] = setting([], meaning="Cautions, such as sources that disagree")

    @model_validator(mode="after")
    def _axes_belong_to_series(self) -> Self:
        if not self.rows and not self.series:
            raise ValueError("a published table or figure needs rows, series or both")
        if {self.x is None, self.y is None} != {not self.series}:
            raise ValueError("x and y say what the series are: give both with series, else none")
        return self


class PaperSize(Settings):
    """A published model size."""

    d_model: int = setting(meaning="Width of the residual stream", unit="features", gt=0)
    num_layers: int = setting(meaning="Decoder layers", unit="layers", gt=0)
    ffn_dim: int | None = setting(
        None,
        meaning="Hidden width of the feed-forward; null: stated as 8/3 of d_model",
        unit="features",
        gt=0,
    )
    diff_heads: int = setting(meaning="Heads of DIFF; the Transformer has twice as many", gt=0)
    head_dim: int = setting(meaning="Width of one softmax map", unit="features", gt=0)
    vocab_size: int = setting(meaning="Size of the vocabulary", unit="tokens", gt=0)
    lr: float = setting(meaning="Peak learning rate", gt=0)
    stated_parameters: float = setting(meaning="Size as the paper names it", unit="parameters")
    counted_parameters: int = setting(
        meaning="layers * (4 d^2 + 3 d ffn) + vocabulary * d, from the stated dimensions",
        unit="parameters",
    )
    note: str = setting(meaning="How the stated size relates to the stated dimensions")
    source: str = setting(meaning="Document and table number")


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
    sizes: dict[str, PaperSize] = setting({}, meaning="Published model sizes by name")


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


def check_papers(papers: PapersFile, artifacts: Mapping[str, object], place: str) -> None:
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
