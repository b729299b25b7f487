"""Base classes of the settings of evaluations.

An evaluation is a folder of ``difftransformer.evaluations``: ``settings.py`` has a `Suite` or a
`Timing` where models are asked something, and `Options` where its sections are told more;
``measure.py`` measures; ``report.py`` has ``section(context)``, ``figure(context)`` or both.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import model_validator

from difftransformer.config.base import Backend, Settings, require_half, setting
from difftransformer.config.generated_rows import GeneratedRows
from difftransformer.config.run import RunConfig
from difftransformer.models.config import ModelConfig

Fact = int | float | bool | str | None

AVERAGE = "average"
"""Name of the unweighted mean over tasks."""
LONGEST_ITEM = 512
"""Tokens of a question or of a solved example at most, where a suite reads them only later."""


class Reading(NamedTuple):
    """Sizes that determine the memory of a suite.

    Attributes:
        sequences: B, sequences in memory.
        new: T, positions computed at one time.
        total: S, positions with those of the cache.
        rows: Positions whose logits exist.
        lower: The settings to lower, with their values.
        cached: Whether keys and values of S positions are kept.
        loss_chunk: Positions whose logits exist at one time, where losses are taken in chunks.
        map_bytes: Bytes for each weight of a layer's maps, or logit before it, where a suite looks
            at them all: the selection of those that causal attention sees, or sums in float64.
    """

    sequences: int
    new: int
    total: int
    rows: int
    lower: str
    cached: bool = False
    loss_chunk: int | None = None
    map_bytes: float = 0.0


class Ngrams(Settings):
    """Definition of frequent n-grams."""

    n: int = setting(meaning="Length of the n-grams.", unit="tokens")
    max_count: int = setting(meaning="Most occurrences of one that counts.", unit="occurrences")


class NgramsConfig(Settings):
    """The n-grams of one dataset that are too frequent for one suite, resolved."""

    scale: str = setting(meaning="Name of the scale.")
    dataset: str = setting(meaning="Name of the dataset.")
    suite: str = setting(meaning="Name of the suite.")
    ngrams: Ngrams = setting(meaning="Length and most occurrences of the n-grams.")


class Suite(Settings):
    """Settings of an evaluation suite: base of every evaluation's own ``Suite``.

    ``kind`` is a Literal with the name of the folder.
    """

    measures_pretrained: ClassVar[bool] = False
    """Whether it measures pretrained models too: one that reads text on that in their token
    ids, which `read_dataset` names, another one as it likes, on a `PretrainedContext`."""
    reads_text: ClassVar[bool] = False
    """Whether it reads packed text or its tokenizer, of pretrained models, too."""
    judged: ClassVar[bool] = False
    """Whether it leaves answers that ``judge.py`` of its folder judges."""
    repeats: ClassVar[str | None] = None
    """Key that names the suite it repeats; that suite's settings are filled in as ``suite``."""
    repeatable: ClassVar[bool] = False
    """Whether another suite may repeat it: it has one number that a model is better or worse by."""

    kind: str
    batch_size: int = setting(32, meaning="Sequences held in memory.", unit="sequences", gt=0)
    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto",
        meaning="Where to evaluate; auto picks CUDA where there is one, logs and records it.",
    )
    backend: Literal["auto", Backend] = setting(
        "auto", meaning="Attention implementation; auto picks, logs and records its choice."
    )
    precision: Literal["fp32", "bf16"] = setting(
        "fp32", meaning="bf16: autocast with fp32 weights; sums are float64 under both."
    )

    @model_validator(mode="after")
    def _some_compute_in_half(self) -> Self:
        require_half([self.backend], self.precision, self.device)
        return self

    @property
    def base_suite(self) -> "Suite":
        """The evaluated suite: this one, or the suite that it repeats."""
        return self

    def read_dataset(self, *, pretrained: bool) -> str | None:
        """Return the dataset to read instead of the run's own; None: the run's own.

        ``pretrained``: the model is pretrained elsewhere, or adapted from such a model.
        """
        return None

    @property
    def reads_intermediate(self) -> bool:
        """Whether it evaluates intermediate checkpoints."""
        return False

    @property
    def ngrams(self) -> Ngrams | None:
        """Definition of the frequent n-grams that it needs; None: it needs none."""
        return None

    @classmethod
    def takes_benchmarks(cls, entry: Mapping[str, Any], benchmarks: str) -> bool:
        """Whether `benchmarks` of config.yaml sets the source of the items."""
        return False

    def incompatibility(self, max_positions: int, rows: GeneratedRows | None) -> str | None:
        """Say in one line why a model or its data does not fit the suite; None: it fits.

        Args:
            max_positions: Longest context of the model.
            rows: Settings of the dataset's generated rows; None for a dataset of text.
        """
        return None

    def files(self) -> Mapping[str, Path]:
        """Return files with its items, by names that do not depend on their folder.

        Raises:
            DataError: A folder is missing, or lacks something.
        """
        return {}

    @property
    def planned_tokens(self) -> int | None:
        """Approximate tokens that a model reads; None: settings do not tell."""
        return None

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Return its sizes in memory; ``longest``: positions of the longest row of the data."""
        raise NotImplementedError(type(self).__name__)

    def lower(self, *keys: str) -> str:
        """Name the settings to lower when memory runs out, with their values."""
        names = ("batch_size", *keys)
        return " or ".join(f"{self.kind}.{key} ({getattr(self, key)})" for key in names)

    def metric_words(self, name: str) -> str:
        """Describe one of its metrics, for suites that repeat it."""
        return f"{name}, share right"


class AnyModel(Settings):
    """Settings of suites that also evaluate pretrained models on text."""

    measures_pretrained: ClassVar[bool] = True
    reads_text: ClassVar[bool] = True

    dataset: str | None = setting(
        None,
        meaning="Dataset of datasets.yaml whose held-out text is read; its token ids are the "
        "run's. null: what the run was trained on, which a pretrained model does not tell.",
    )

    pretrained_dataset: str | None = setting(
        None,
        meaning="The same, of pretrained models and of what adapting them makes; null: `dataset`.",
    )

    def read_dataset(self, *, pretrained: bool) -> str | None:
        """Return the dataset to read instead of the run's own, or None."""
        return (self.pretrained_dataset if pretrained else None) or self.dataset


class SplitSuite(Suite):
    """Suite on windows of the validation split."""

    reads_text: ClassVar[bool] = True

    seq_len: int = setting(
        meaning="Positions of a window of the validation split; windows do not overlap.",
        unit="tokens",
        gt=1,
    )

    def incompatibility(self, max_positions: int, rows: GeneratedRows | None) -> str | None:
        """Windows must not be longer than the model's context."""
        if self.seq_len <= max_positions:
            return None
        return f"seq_len {self.seq_len} is longer than its max_positions {max_positions}"


class WindowSuite(SplitSuite):
    """Suite on consecutive windows from the start of the validation split."""

    map_bytes: ClassVar[float] = 0.0
    """Bytes per attention map entry that the suite keeps."""

    max_tokens: int | None = setting(
        65_536,
        meaning="Tokens read, rounded down to whole windows; null: the whole split.",
        unit="tokens",
        gt=0,
    )

    @property
    def planned_tokens(self) -> int | None:
        """Number of tokens that the suite evaluates at most."""
        return self.max_tokens

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Whole windows, a batch at a time."""
        length = min(self.seq_len, model.max_positions)
        return Reading(
            self.batch_size, length, length, 0, self.lower("seq_len"), map_bytes=self.map_bytes
        )


class LossSuite(WindowSuite):
    """Suite on losses in consecutive windows of the validation split."""

    max_tokens: int | None = setting(
        None,
        meaning="Predicted tokens, rounded down to whole windows; null: the whole split.",
        unit="tokens",
        gt=0,
    )
    loss_chunk: int = setting(
        1024, meaning="Positions whose logits exist at one time.", unit="tokens", gt=0
    )

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Whole windows, a batch at a time, and the logits of a chunk of them."""
        windows = super().reading(model, longest)
        return windows._replace(rows=self.batch_size * windows.new, loss_chunk=self.loss_chunk)


class PromptSuite(Suite):
    """Suite with long prompts, one at a time."""

    chunk: int = setting(
        4096, meaning="Positions of a prompt computed at one time.", unit="tokens", gt=0
    )

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """A prompt at a time, in chunks."""
        lower = f"{self.kind}.chunk ({self.chunk})"
        return Reading(1, min(self.chunk, longest), longest, 1, lower, cached=True)


class Options(Settings):
    """Options that a section of an artifact gives its evaluation."""

    suites: ClassVar[int] = 1
    """How many suites of evaluations.yaml a section reads."""
    trained: ClassVar[bool] = True
    """Whether its rows must be trained."""
    tuning: ClassVar[bool] = False
    """Whether it only shows how learning rates were chosen."""
    seeded: ClassVar[bool] = True
    """Whether its numbers are over seeds, which a note of the table then names."""
    paired: ClassVar[bool] = False
    """Whether each row has a `paired_run`, another run that it shows beside it."""
    needs_size_grid: ClassVar[bool] = False
    """Whether its rows are a run's models of several sizes."""
    timing: ClassVar[str | None] = None
    """Evaluation whose timings it shows; None for none."""
    claim_columns: ClassVar[tuple[str, ...]] = ()
    """Columns of its tables that registered claims may name."""
    browsed: ClassVar[bool] = False
    """Whether its report has `maps`, attention maps on prompts that a reader chooses from."""

    @property
    def swept(self) -> bool:
        """Whether rows are replaced by a learning-rate sweep of the scale."""
        return False

    @property
    def reads_histories(self) -> bool:
        """Whether its table reads training curves."""
        return False

    @property
    def paired_suites(self) -> Sequence[str]:
        """Suites that evaluate the paired runs of the rows."""
        return ()

    @property
    def replicated(self) -> str | None:
        """Paper of papers.yaml whose independent replications it shows."""
        return None

    def check_rows(self, runs: Sequence[str]) -> None:
        """Check its references to the section's rows.

        Raises:
            ValueError: It names one that is not there.
        """

    def check_size_grid(self, recipes: Sequence[str]) -> None:
        """Check the recipes of its size grid.

        Raises:
            ValueError: They cannot be shown.
        """

    def facts(self, run: RunConfig) -> dict[str, Fact]:
        """Return properties of a run that tables show, such as its heads."""
        attention = run.model.attention
        return {
            "d_model": run.model.d_model,
            "layers": run.model.num_layers,
            "heads": attention.output_heads,
            "head_dim": attention.head_dim,
        }


def log_spaced(first: int, last: int, number: int) -> list[int]:
    """Return distinct positions, ascending and evenly spaced on a logarithmic axis.

    Args:
        first: The smallest; below ``last``.
        last: The largest, which is always among them.
        number: How many, two or more.
    """
    step = (last / first) ** (1 / (number - 1))
    positions = {round(first * step**index) for index in range(number - 1)}
    return [*sorted(positions - {last}), last]
