"""Tables and figures as declared in ``artifacts.yaml``, ``claims.yaml`` and ``paper_values.yaml``.

An artifact is a table, a figure or both over the same rows. What a job gets of it is an
`ArtifactSlice` (see `difftransformer.config.artifact_slices`), which refers to nothing else.
"""

from typing import Literal, Self

from pydantic import model_validator

from difftransformer.config.base import Name, Settings, setting
from difftransformer.config.scaling import ScalingConfig
from difftransformer.config.spikes import SpikesConfig

UNTRAINED = ("hyperparameters", "throughput", "decoding")
"""Measures that no row has to be trained for."""
Kind = Literal["table", "figure"]
Direction = Literal["lower", "higher"]
Test = Literal["paired_t", "equivalence", "noninferiority", "sign"]
_SWEPT = ("learning_rate", "stability")
_FROM_HISTORIES = ("token_scaling", "loss_by_tokens", "stability", "spikes")


class RowConfig(Settings):
    """One row: a run, and the row it is compared with."""

    run: str = setting(meaning="Run of runs.yaml that the row shows")
    label: str | None = setting(None, meaning="Name of the row; null: the label of the run")
    against: str | None = setting(
        None,
        meaning="Row whose value is subtracted, seed by seed, in the column of differences; "
        "null: the section's `against`",
    )
    paper: str | None = setting(
        None, meaning="Row of the published table beside it; null: that of the row's own run"
    )
    retrieval: str | None = setting(
        None, meaning="Run of the same architecture on key-value retrieval, for `variants`"
    )


class SectionConfig(Settings):
    """Rows that share their columns."""

    title: str = setting(meaning="Heading of the section")
    measures: Literal[
        "language_modelling",
        "recall",
        "learning_rate",
        "language_understanding",
        "nll_by_position",
        "size_scaling",
        "token_scaling",
        "needles",
        "needles_long",
        "attention",
        "attention_logits",
        "hidden_states",
        "hyperparameters",
        "quantised_logits",
        "quantised_weights",
        "quantised_kv_cache",
        "many_shot",
        "many_shot_orders",
        "loss_by_tokens",
        "stability",
        "spikes",
        "context_rms",
        "sinks",
        "hallucination",
        "throughput",
        "variants",
        "mathematics",
        "math_by_tokens",
        "decoding",
    ] = setting(
        meaning="Set of columns, made by the module of reporting.measures of that name: losses by "
        "slice, binding and accuracy by N, a metric by learning rate, accuracies of language "
        "tasks, the cumulative loss by position, loss by model size or by training tokens with "
        "fitted curves, needle accuracy by setting or by context length, attention shares, the "
        "outliers of one kind of activation, the settings of the rows, the score by bits of what "
        "is rounded, validation loss along training, spikes and divergence by learning rate or at "
        "each row's own, the context RMS by position, attention on the first token, cost and "
        "scores of variants, what judges find free of hallucination, tokens per second and memory, "
        "accuracy by number of demonstrations, or its spread over their orders, accuracy on sets "
        "of mathematics, or its mean by tokens of training"
    )
    suites: list[str] = setting(
        [], meaning="Evaluation suites of evaluations.yaml that every row of the section needs"
    )
    retrieval_suites: list[str] = setting(
        [], meaning="Evaluation suites that the rows' `retrieval` runs need, for `variants`"
    )
    rows: list[RowConfig] = setting(meaning="Rows from top to bottom", min_length=1)
    family: str | None = setting(
        None, meaning="Family of the scale: each row stands for its run at every setup of it"
    )
    against: str | None = setting(
        None, meaning="Row that the others are compared with; null: no column of differences"
    )
    needles: list[int] = setting(
        [1, 2, 4, 6, 8, 16],
        meaning="Numbers of pairs N with a column of accuracy, for `recall`",
        unit="pairs",
    )
    metric: str | None = setting(
        None, meaning="Metric of the training result that a learning-rate sweep minds"
    )
    better: Direction = setting(
        "lower", meaning="Whether a lower or a higher metric is better, of a sweep or a score"
    )
    scaling: ScalingConfig | None = setting(
        None, meaning="How curves are fitted and read, for `size_scaling` and `token_scaling`"
    )
    spikes: SpikesConfig | None = setting(
        None, meaning="What counts as a spike, for `stability` and `spikes`"
    )

    @property
    def swept(self) -> bool:
        """Whether the scale sweeps the rows' learning rates for the section."""
        return self.measures in _SWEPT

    @property
    def reads_histories(self) -> bool:
        """Whether its table is made of curves, not of final numbers alone."""
        return self.measures in _FROM_HISTORIES

    @model_validator(mode="after")
    def _references_are_rows(self) -> Self:
        runs = [row.run for row in self.rows]
        if len(set(runs)) < len(runs):
            raise ValueError(f"a run stands twice among the rows {runs}")
        for against in (self.against, *(row.against for row in self.rows)):
            if against is not None and against not in runs:
                raise ValueError(f"against: '{against}' is none of the rows {runs}")
        unmeasured = self.swept or self.reads_histories or self.measures in UNTRAINED
        wanted = 0 if unmeasured else 2 if self.measures == "variants" else 1
        if len(self.suites) != wanted:
            number = {0: "none", 1: "exactly one", 2: "two, of losses and of outliers"}[wanted]
            raise ValueError(f"suites: measures {self.measures} read {number}, got {self.suites}")
        twins = {row.retrieval is not None for row in self.rows}
        if twins != {self.measures == "variants"} or len(self.retrieval_suites) != max(twins):
            raise ValueError(
                "retrieval and one of retrieval_suites belong to measures: variants, and every row "
                "needs them there"
            )
        if (self.measures == "learning_rate") != (self.metric is not None):
            raise ValueError("metric belongs to measures: learning_rate, and is required there")
        scales = self.measures in ("size_scaling", "token_scaling")
        if scales != (self.scaling is not None) or (scales and self.family is None):
            raise ValueError(
                "scaling belongs to measures: size_scaling and token_scaling, and is required "
                "there, as is family"
            )
        if (self.measures in ("stability", "spikes")) != (self.spikes is not None):
            raise ValueError("spikes belongs to measures: stability and spikes, required there")
        return self


class BuilderConfig(Settings):
    """How a table or a figure is made of the rows."""

    builder: str = setting(
        meaning="Module of difftransformer.reporting.tables or .figures that makes it"
    )
    caption: str = setting(meaning="Text that stands with it")
    alt: str = setting("", meaning="What the picture shows, for those who cannot see it")


class ArtifactConfig(Settings):
    """A table, a figure, or both over the same rows."""

    title: str = setting(meaning="Heading in the report")
    description: str = setting(meaning="One line, shown by `snakemake --list-target-rules`")
    sections: list[SectionConfig] = setting(meaning="Groups of rows", min_length=1)
    table: BuilderConfig | None = setting(None, meaning="The table; null: there is none")
    figure: BuilderConfig | None = setting(None, meaning="The figure; null: there is none")
    paper: str | None = setting(
        None, meaning="Entry of paper_values.yaml whose numbers stand beside ours"
    )
    claims: list[str] = setting([], meaning="Claims of claims.yaml that this artifact judges")
    interventions: list[str] = setting(
        [], meaning="Runs that exist for this artifact: what rerunning exactly this one trains"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.table is None and self.figure is None:
            raise ValueError("an artifact needs a table, a figure or both")
        foreign = set(self.interventions) - set(self.runs())
        if foreign:
            raise ValueError(f"interventions are not among the rows: {sorted(foreign)}")
        return self

    @property
    def tunes(self) -> bool:
        """Whether it only shows how learning rates were chosen."""
        return all(part.measures == "learning_rate" for part in self.sections)

    def runs(self) -> list[str]:
        """List the runs that rows name, in order; families and sweeps train others too."""
        rows = [row for part in self.sections for row in part.rows]
        named = [name for row in rows for name in (row.run, row.retrieval) if name is not None]
        return list(dict.fromkeys(named))


class ClaimConfig(Settings):
    """A statement and the test that would confirm or contradict it, declared before the runs."""

    text: str = setting(meaning="The statement, in words")
    source: str = setting(meaning="Section or table of the paper; or that it goes beyond it")
    scope: Literal["paper", "beyond the paper"] = setting(
        "paper", meaning="Whether the paper states it or we do"
    )
    artifact: str = setting(meaning="Artifact that judges it; others may show it too")
    metric: str = setting(meaning="Column of that artifact's table")
    row: str = setting(meaning="Run that the statement is about")
    against: str | float = setting(
        meaning="Run it is compared with, seed by seed; or a number, such as 1 for a ratio"
    )
    against_metric: str | None = setting(
        None, meaning="Column of `against`, a run; null: the same as of `row`"
    )
    direction: Direction = setting(
        "lower",
        meaning="Side on which `row` lies of `against` if the statement holds; under "
        "noninferiority the side that is better; without meaning for equivalence",
    )
    test: Test = setting(
        meaning="paired_t: interval of the mean difference over seeds; equivalence: two one-sided "
        "t tests within ±margin; noninferiority: one-sided t test against the margin; sign: exact "
        "sign test of the seeds that differ (McNemar's for yes-or-no outcomes)"
    )
    alpha: float = setting(0.05, meaning="Error rate of the test", gt=0, lt=0.5)
    over: Literal["seeds", "repeats"] = setting(
        "seeds", meaning="What the values are of: seeds, or timed repeats within one process"
    )
    margin: float | None = setting(
        None, meaning="Largest difference that counts as none, in the unit of the metric", gt=0
    )

    @model_validator(mode="after")
    def _margin_where_it_belongs(self) -> Self:
        if (self.test in ("equivalence", "noninferiority")) != (self.margin is not None):
            raise ValueError(f"test {self.test}: margin is for equivalence and noninferiority")
        if self.row == self.against:
            raise ValueError(f"row and against are both '{self.row}'")
        if self.against_metric is not None and not isinstance(self.against, str):
            raise ValueError(f"against_metric: against is the number {self.against:g}")
        return self


class ArtifactsFile(Settings):
    """``config/artifacts.yaml``."""

    artifacts: dict[Name, ArtifactConfig] = setting(meaning="Every table and figure by its id")


class ClaimsFile(Settings):
    """``config/claims.yaml``: what would confirm or contradict each statement."""

    claims: dict[str, ClaimConfig] = setting(meaning="Every claim by its id, such as T6.1")
