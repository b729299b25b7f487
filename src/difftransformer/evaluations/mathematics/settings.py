"""What is asked about mathematics."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from difftransformer.config.base import setting
from difftransformer.config.evaluation import LONGEST_ITEM, Reading
from difftransformer.config.evaluation import Options as BaseOptions
from difftransformer.config.evaluation import Suite as BaseSuite
from difftransformer.config.generated_rows import GeneratedRows
from difftransformer.config.training import TrainingConfig
from difftransformer.config.validation import names_from
from difftransformer.data.math_sets import MATH_SETS
from difftransformer.evaluation.item_files import BUILTIN
from difftransformer.evaluations.mathematics.set_items import set_files
from difftransformer.models.config import ModelConfig


def metric_of(name: str, part: str = "", tokens: int | None = None) -> str:
    """Metric of a set or of the average over them: its accuracy, or a part beside that.

    Args:
        name: The set.
        part: Such as stderr.
        tokens: Of the weights kept after so many tokens of training; None: of the final ones.
    """
    return f"{name}{part and f'_{part}'}{ending_of(tokens)}"


def ending_of(tokens: int | None) -> str:
    """What the metrics of weights end in that were kept after so many tokens of training."""
    return "" if tokens is None else f"_t{tokens}"


def kept_tokens(training: TrainingConfig) -> list[int]:
    """Tokens after which a training keeps its weights, ascending, the last ones left out."""
    return [step * training.tokens_per_step for step in training.intermediate_steps]


class Suite(BaseSuite):
    """Questions with one answer, asked without examples; the model writes its steps and answers.

    The output is generated greedily, and its answer compared with the published one by
    `math_verify`. Sets are lm-eval tasks of ours, by its own evaluator.
    """

    kind: Literal["mathematics"] = setting(meaning="Which evaluation the suite is.")
    tasks: Annotated[list[str], AfterValidator(names_from(MATH_SETS, "set"))] = setting(
        list(MATH_SETS),
        meaning="Sets; the average is over all of them.",
        source="arXiv 2410.05258v2, figure 10",
        min_length=1,
    )
    limit: int | None = setting(
        None,
        meaning="First so many items of each set; null: all, and of generated sets 100.",
        unit="items",
        ge=2,
    )
    data: str = setting(
        "hub",
        meaning="'hub': a pinned commit of a public repository; 'builtin': generated items in the "
        "fields of the sets; else a folder with <set>/test.jsonl or .jsonl.gz. `benchmarks` of "
        "config.yaml wins over it.",
    )
    max_new_tokens: int = setting(
        1024,
        meaning="Room for an output.",
        unit="tokens",
        source="arXiv 2410.05258v2, appendix C: 1K in stage 1, 16K in stage 2",
        gt=0,
    )
    intermediate_checkpoints: bool = setting(
        False,
        meaning="Whether the weights that training kept on its way (`save_checkpoints_at`) are "
        "measured as well.",
    )
    backend: Literal["auto", "eager", "blocked", "sdpa", "flash_attn"] = setting(
        "sdpa",
        meaning="Attention of the model; sdpa is what the `lm_eval` command runs on an exported "
        "checkpoint.",
    )

    @property
    def proxy(self) -> str | None:
        """What stands in for the sets; None where the items are theirs."""
        return "generated arithmetic" if self.data == BUILTIN else None

    @property
    def reads_intermediate(self) -> bool:
        """Whether it is asked of them, too."""
        return self.intermediate_checkpoints

    @classmethod
    def takes_benchmarks(cls, entry: Mapping[str, Any], benchmarks: str) -> bool:
        """It always does."""
        return True

    def incompatibility(self, max_positions: int, rows: GeneratedRows | None) -> str | None:
        """A prompt must fit before the output."""
        if self.max_new_tokens < max_positions:
            return None
        return (
            f"max_new_tokens {self.max_new_tokens} leaves no room for a prompt in its "
            f"max_positions {max_positions}"
        )

    def files(self) -> dict[str, Path]:
        """Files of all sets."""
        return {
            f"{name}/{path.name.partition('.jsonl')[0]}": path
            for name in self.tasks
            for path in set_files(name, self.data)
        }

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Prompts with room for their outputs, a batch at a time."""
        batch, lower = self.batch_size, self.lower("max_new_tokens")
        total = min(model.max_positions, LONGEST_ITEM + self.max_new_tokens)
        return Reading(batch, min(total, LONGEST_ITEM), total, batch, lower, cached=True)


class Options(BaseOptions):
    """What is in the columns."""

    by: Literal["set", "tokens"] = setting(
        "set", meaning="Accuracy by set, or its mean over the sets by tokens of training"
    )
