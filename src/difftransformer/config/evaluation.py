"""Base classes for the settings of evaluations.

An evaluation is a folder of ``difftransformer.evaluations``. Its ``settings.py`` has a class
`Suite` (to evaluate models) or `Timing` (to time them), and a class `Options` if its sections have
options. Its ``measure.py`` runs the evaluation. Its ``report.py`` has ``section(context)``,
``figure(context)`` or both.
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
"""Maximum tokens of a question or a worked example, where a suite reads its items only later."""


class Reading(NamedTuple):
    """Sizes of a suite's forward passes, from which its memory is estimated.

    Attributes:
        sequences: B, number of sequences in memory.
        new: T, number of positions per forward pass.
        total: S, number of positions including those in the KV cache.
        rows: Number of positions for which logits are computed.
        lower: Settings to lower if memory does not suffice, with their values.
        cached: Whether keys and values of S positions are kept in a cache.
        loss_chunk: Number of positions whose logits are in memory together, if losses are computed
            in chunks.
        map_bytes: Extra bytes per entry of a layer's attention maps, for a suite that reads all
            maps or logits: copies of the entries that causal attention sees, or sums in float64.
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
    """Definition of the n-grams that are too frequent to be evaluated."""

    n: int = setting(meaning="Length of the n-grams.", unit="tokens")
    max_count: int = setting(meaning="Most occurrences of one that counts.", unit="occurrences")


class NgramsConfig(Settings):
    """Resolved config of the job that finds the n-grams of a dataset too frequent for a suite."""

    scale: str = setting(meaning="Name of the scale.")
    dataset: str = setting(meaning="Name of the dataset.")
    suite: str = setting(meaning="Name of the suite.")
    ngrams: Ngrams = setting(meaning="Length and most occurrences of the n-grams.")


class Suite(Settings):
    """Base class for the settings of evaluation suites; every evaluation derives its own ``Suite``.

    The field ``kind`` is a Literal with the name of the evaluation's folder.
    """

    measures_pretrained: ClassVar[bool] = False
    """Whether the suite also evaluates pretrained models. A suite that reads text then reads the
    dataset returned by `read_dataset` in the model's token ids. Any other suite gets a
    `PretrainedContext`."""
    reads_text: ClassVar[bool] = False
    """Whether the suite reads packed text or its tokenizer, also for pretrained models."""
    judged: ClassVar[bool] = False
    """Whether the suite writes answers that ``judge.py`` in its evaluation's folder judges."""
    repeats: ClassVar[str | None] = None
    """Key of the setting that names the suite to repeat, whose settings are stored as ``suite``."""
    repeatable: ClassVar[bool] = False
    """Whether another suite may repeat this one, which must have a single score to compare."""

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
        """The suite that is evaluated: this one, or the suite that it repeats."""
        return self

    def read_dataset(self, *, pretrained: bool) -> str | None:
        """Return the name of the dataset to read; None means the run's training dataset."""
        return None

    @property
    def reads_intermediate(self) -> bool:
        """Whether the suite evaluates intermediate checkpoints."""
        return False

    @property
    def ngrams(self) -> Ngrams | None:
        """Definition of the frequent n-grams that the suite excludes; None: it needs none."""
        return None

    @classmethod
    def takes_benchmarks(cls, entry: Mapping[str, Any], benchmarks: str) -> bool:
        """Return whether `benchmarks` in config.yaml sets the source of the suite's items.

        Args:
            entry: Settings of the suite.
            benchmarks: Value of `benchmarks` in config.yaml.
        """
        return False

    def incompatibility(self, max_positions: int, rows: GeneratedRows | None) -> str | None:
        """Return in one line why the suite cannot evaluate a model or its data; None if it can.

        Args:
            max_positions: Longest context of the model.
            rows: Settings of the dataset's generated rows; None for a dataset of text.
        """
        return None

    def files(self) -> Mapping[str, Path]:
        """Return the paths of the files with the suite's items, by names without their folder.

        Raises:
            DataError: A folder or a file in it is missing.
        """
        return {}

    @property
    def planned_tokens(self) -> int | None:
        """Approximate number of tokens that a model reads; None if settings do not tell."""
        return None

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Return the sizes that determine the suite's memory for a model."""
        raise NotImplementedError(type(self).__name__)

    def lower(self, *keys: str) -> str:
        """Return the settings to lower when memory runs out, with their values, for messages."""
        names = ("batch_size", *keys)
        return " or ".join(f"{self.kind}.{key} ({getattr(self, key)})" for key in names)

    def metric_words(self, name: str) -> str:
        """Return the description of one of the suite's metrics, for suites that repeat it."""
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
        """Return the name of the dataset to read; None means the run's training dataset."""
        return (self.pretrained_dataset if pretrained else None) or self.dataset


class SplitSuite(Suite):
    """Base class for suites that read windows of the validation split."""

    reads_text: ClassVar[bool] = True

    seq_len: int = setting(
        meaning="Positions of a window of the validation split; windows do not overlap.",
        unit="tokens",
        gt=1,
    )

    def incompatibility(self, max_positions: int, rows: GeneratedRows | None) -> str | None:
        """Return the reason if windows are longer than the model's context; None otherwise."""
        if self.seq_len <= max_positions:
            return None
        return f"seq_len {self.seq_len} is longer than its max_positions {max_positions}"


class WindowSuite(SplitSuite):
    """Base class for suites on consecutive windows from the start of the validation split."""

    map_bytes: ClassVar[float] = 0.0
    """Bytes per entry of the attention maps that the suite keeps."""

    max_tokens: int | None = setting(
        65_536,
        meaning="Tokens read, rounded down to whole windows; null: the whole split.",
        unit="tokens",
        gt=0,
    )

    @property
    def planned_tokens(self) -> int | None:
        """Maximum number of tokens that the suite evaluates; None: the whole split."""
        return self.max_tokens

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Return the sizes of a batch of whole windows."""
        length = min(self.seq_len, model.max_positions)
        return Reading(
            self.batch_size, length, length, 0, self.lower("seq_len"), map_bytes=self.map_bytes
        )


class LossSuite(WindowSuite):
    """Base class for suites on the losses of consecutive windows of the validation split."""

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
        """Return the sizes of a batch of whole windows, with the logits of one chunk."""
        windows = super().reading(model, longest)
        return windows._replace(rows=self.batch_size * windows.new, loss_chunk=self.loss_chunk)


class PromptSuite(Suite):
    """Base class for suites with long prompts, which are evaluated one at a time."""

    chunk: int = setting(
        4096, meaning="Positions of a prompt computed at one time.", unit="tokens", gt=0
    )

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Return the sizes of one prompt that is computed in chunks."""
        lower = f"{self.kind}.chunk ({self.chunk})"
        return Reading(1, min(self.chunk, longest), longest, 1, lower, cached=True)


class Options(Settings):
    """Base class for the options that a section of a table or figure gives its evaluation."""

    suites: ClassVar[int] = 1
    """Number of suites of evaluations.yaml that a section reads."""
    trained: ClassVar[bool] = True
    """Whether the rows must be runs that are trained here."""
    tuning: ClassVar[bool] = False
    """Whether the section only shows how learning rates were chosen."""
    seeded: ClassVar[bool] = True
    """Whether the numbers are means over seeds, which a note below the table then lists."""
    paired: ClassVar[bool] = False
    """Whether each row shows a second run, its `paired_run`."""
    needs_size_grid: ClassVar[bool] = False
    """Whether the rows show a run at several model sizes, and thus need a size grid."""
    timing: ClassVar[str | None] = None
    """Name of the evaluation whose timings the section shows; None: no timings."""
    claim_columns: ClassVar[tuple[str, ...]] = ()
    """Columns of the tables that registered claims may name."""
    browsed: ClassVar[bool] = False
    """Whether the report has an interactive page with attention maps on selectable prompts."""

    @property
    def swept(self) -> bool:
        """Whether a learning-rate sweep of the scale replaces the rows."""
        return False

    @property
    def reads_histories(self) -> bool:
        """Whether the table reads the history files of the trainings."""
        return False

    @property
    def paired_suites(self) -> Sequence[str]:
        """Names of the suites that evaluate the paired runs of the rows."""
        return ()

    @property
    def replicated(self) -> str | None:
        """Name of the paper in papers.yaml whose independent replications the section shows."""
        return None

    def check_rows(self, runs: Sequence[str]) -> None:
        """Check the options' references to rows of the section.

        Raises:
            ValueError: An option names a run that is not a row.
        """

    def check_size_grid(self, recipes: Sequence[str]) -> None:
        """Check that the evaluation can show a size grid.

        Raises:
            ValueError: The evaluation cannot show these recipes.
        """

    def facts(self, run: RunConfig) -> dict[str, Fact]:
        """Return properties of a run's model that tables show, such as its number of heads."""
        attention = run.model.attention
        return {
            "d_model": run.model.d_model,
            "layers": run.model.num_layers,
            "heads": attention.output_heads,
            "head_dim": attention.head_dim,
        }


def log_spaced(first: int, last: int, number: int) -> list[int]:
    """Return distinct integers, ascending and evenly spaced on a logarithmic axis.

    Args:
        first: The smallest value; below ``last``.
        last: The largest value, which is always included.
        number: Number of values before rounding and removal of duplicates, two or more.
    """
    step = (last / first) ** (1 / (number - 1))
    positions = {round(first * step**index) for index in range(number - 1)}
    return [*sorted(positions - {last}), last]
