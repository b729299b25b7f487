"""Published tables, figures and numbers: shown next to this project's, never used as input."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Literal, Self

from pydantic import model_validator

from difftransformer.config.base import Settings, setting
from difftransformer.errors import ConfigError, lookup

Number = int | float | bool | None
State = Literal[
    "built here",
    "not in this report",
    "needs scale",
    "needs a judge",
    "not built yet",
    "nothing to measure",
]

GROUPS = ("default_targets", "all", "sweeps")
"""Names of targets that stand for groups of artifacts."""
TARGETS = {
    **dict.fromkeys(GROUPS, "a group of artifacts"),
    **dict.fromkeys(
        (
            *("train_tokenizer", "tokenize", "count_ngrams", "pretrain", "extend_context"),
            *("adapt", "evaluate", "judge_answers", "benchmark", "table", "figure"),
            *("verdicts", "report"),
        ),
        "a rule of the workflow",
    ),
}
"""Reserved names, which no paper and no artifact may have -> what has the name."""


class PaperDifference(Settings):
    """A published difference between two rows, as a number or a range.

    It takes precedence over the difference of the rows' published values.
    """

    baseline: str = setting(meaning="Run that rebuilds the row that was subtracted")
    low: float = setting(meaning="Smaller end, in the unit of the column")
    high: float = setting(meaning="Larger end")

    @property
    def middle(self) -> float:
        """Midpoint of the published range."""
        return (self.low + self.high) / 2

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} lies above high {self.high:g}")
        return self


class PaperRow(Settings):
    """One row of a published table."""

    label: str = setting(meaning="Name of the row as printed")
    values: dict[str, Number] = setting(meaning="Published values by column id")
    differences: dict[str, PaperDifference] = setting(
        {}, meaning="Published differences by column id, which win over those of the values"
    )


class PaperSeries(Settings):
    """One curve of a published figure."""

    label: str = setting(meaning="Name of the curve as printed")
    x: list[float] = setting(meaning="Horizontal values, ascending", min_length=1)
    y: list[float] = setting(meaning="Vertical values, one for each x", min_length=1)

    @model_validator(mode="after")
    def _is_a_curve(self) -> Self:
        if len(self.x) != len(self.y):
            raise ValueError(f"{len(self.x)} values of x, but {len(self.y)} of y")
        if any(left >= right for left, right in pairwise(self.x)):
            raise ValueError(f"x must ascend, got {self.x}")
        return self


class PaperTable(Settings):
    """The numbers of a published table or figure, shown next to this project's numbers."""

    title: str = setting(meaning="What the published table or figure is")
    source: str = setting(meaning="Document and number of the table or figure")
    scale: str = setting(meaning="Model size and tokens behind the numbers")
    model: str | None = setting(
        None, meaning="Size of the model, where a figure has a column of it; null: in `scale` alone"
    )
    tokens: float | None = setting(None, meaning="The same of the tokens", unit="tokens", gt=0)
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
    """A model size in a paper, with the dimensions and learning rate that the paper states."""

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
    """A table or figure of a paper, with the artifact that rebuilds it or the reason for none."""

    item: str = setting(meaning="Its number, as printed, such as Table 6")
    shows: str = setting(meaning="What it shows, in a few words")
    artifact: str | None = setting(None, meaning="Artifact that rebuilds it; null: none does")
    reason: str | None = setting(None, meaning="Why it cannot be rebuilt")
    missing: str | None = setting(None, meaning="What must be implemented to rebuild it")

    @model_validator(mode="after")
    def _rebuilt_or_explained(self) -> Self:
        if [self.artifact, self.reason, self.missing].count(None) != 2:
            raise ValueError(
                f"{self.item}: give one of artifact, reason (why there is nothing to rebuild) and "
                "missing (why nothing rebuilds it yet)"
            )
        return self


class PaperConfig(Settings):
    """A paper with its list of tables and figures."""

    title: str = setting(meaning="Title and year of the paper")
    source: str = setting(meaning="Where it is published")
    items: list[PaperItem] = setting(
        meaning="Every table and figure of it, in the order of their numbers", min_length=1
    )


class Replication(Settings):
    """An independent replication of the main difference that a paper reports."""

    study: str = setting(meaning="Authors and name of the experiment")
    paper: str = setting(meaning="Paper of `papers` whose comparison it repeats")
    model: str = setting(meaning="Size of the model")
    tokens: float | None = setting(
        None, meaning="Tokens of a training; null: not stated", unit="tokens", gt=0
    )
    seeds: int = setting(meaning="Pairs of trainings behind the difference", ge=1)
    difference: float | None = setting(
        None,
        meaning="Validation loss of the paper's model less the Transformer's, mean over seeds; "
        "null: not stated",
        unit="nats per token",
    )
    deviation: float | None = setting(
        None, meaning="Standard deviation of it over seeds; null: not stated", gt=0
    )
    low: float | None = setting(None, meaning="Smallest difference of a seed; null: not stated")
    high: float | None = setting(None, meaning="Largest difference of a seed; null: not stated")
    note: str = setting(meaning="How it was measured, and what else is known")
    source: str = setting(meaning="Where it is published")

    @model_validator(mode="after")
    def _spreads_around_the_mean(self) -> Self:
        spread = [value for value in (self.low, self.difference, self.high) if value is not None]
        if spread != sorted(spread) or len({self.low is None, self.high is None}) > 1:
            raise ValueError(
                f"{self.study}: give low and high, with difference between them, or none"
            )
        if self.seeds == 1 and (self.low, self.deviation) != (None, None):
            raise ValueError(f"{self.study}: one seed has no deviation, no low and no high")
        return self


class PapersFile(Settings):
    """``config/papers.yaml``: tables and figures of the papers, replications and model sizes."""

    papers: dict[str, PaperConfig] = setting(meaning="Papers by a short name")
    replications: list[Replication] = setting(
        [], meaning="Independent replications of their central differences"
    )
    sizes: dict[str, PaperSize] = setting({}, meaning="Published model sizes by name")


class ItemStatus(Settings):
    """Status of a paper's table or figure, as a report shows it."""

    item: str = setting(meaning="Its number")
    shows: str = setting(meaning="What it shows")
    artifact: str | None = setting(None, meaning="Artifact that rebuilds it")
    states: list[State] = setting(meaning="Its states")
    note: str = setting("", meaning="What is missing, and how to build it")


class PaperStatus(Settings):
    """Status of all tables and figures of a paper, as a report shows it."""

    title: str = setting(meaning="Title and year of the paper")
    source: str = setting(meaning="Where it is published")
    items: list[ItemStatus] = setting(meaning="One line for each table and figure")


def check_papers(papers: PapersFile, artifacts: Mapping[str, object], location: str) -> None:
    """Check the papers' references to artifacts and papers, and that no paper has a reserved name.

    Raises:
        ConfigError: One line with the key path, the unknown name and the nearest known one.
    """
    for name, paper in papers.papers.items():
        if name in TARGETS:
            raise ConfigError(
                f"{location}: papers.{name} is the name of {TARGETS[name]}; rename it"
            )
        for index, item in enumerate(paper.items):
            if item.artifact is not None:
                item_location = f"{location}: papers.{name}.items[{index}]"
                lookup(artifacts, item.artifact, "artifact", item_location)
    for index, replication in enumerate(papers.replications):
        lookup(
            papers.papers, replication.paper, "paper", f"{location}: replications[{index}].paper"
        )
