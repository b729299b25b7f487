"""Settings of the mathematics evaluation: suite and report options."""

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


def metric_name(name: str, part: str = "", tokens: int | None = None) -> str:
    """Return the name of a metric of a set, or of the average over sets.

    Args:
        name: Name of the set, or of the average.
        part: Suffix such as "stderr"; empty: the accuracy.
        tokens: Training tokens of an intermediate checkpoint; None: the final weights.
    """
    return f"{name}{part and f'_{part}'}{checkpoint_suffix(tokens)}"


def checkpoint_suffix(tokens: int | None) -> str:
    """Return the suffix of an intermediate checkpoint's metrics; empty for the final weights."""
    return "" if tokens is None else f"_t{tokens}"


def intermediate_tokens(training: TrainingConfig) -> list[int]:
    """Return the training tokens at each intermediate checkpoint of a training run, ascending."""
    return [step * training.tokens_per_step for step in training.intermediate_steps]


class Suite(BaseSuite):
    """Suite of zero-shot mathematics: accuracy of greedy outputs, graded by `math_verify`.

    Each set is an lm-eval task of our own, run by lm-eval's evaluator.
    """

    kind: Literal["mathematics"] = setting(meaning="Which evaluation the suite is.")
    tasks: Annotated[list[str], AfterValidator(names_from(MATH_SETS, "set"))] = setting(
        list(MATH_SETS),
        meaning="Sets, all of which the average is over.",
        source="arXiv 2410.05258v2, figure 10",
        min_length=1,
    )
    limit: int | None = setting(
        None,
        meaning="First items of each set; null: all, or 100 of generated sets.",
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
        meaning="Maximum length of an output.",
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
        """Name of the proxy that replaces the sets, or None if the items are from the sets."""
        return "generated arithmetic" if self.data == BUILTIN else None

    @property
    def reads_intermediate(self) -> bool:
        """Whether the suite evaluates intermediate checkpoints of training."""
        return self.intermediate_checkpoints

    @classmethod
    def takes_benchmarks(cls, entry: Mapping[str, Any], benchmarks: str) -> bool:
        """Return whether `benchmarks` of config.yaml sets the source of items: always true."""
        return True

    def incompatibility(self, max_positions: int, rows: GeneratedRows | None) -> str | None:
        """Return why a model's context is too short for the outputs, or None."""
        if self.max_new_tokens < max_positions:
            return None
        return (
            f"max_new_tokens {self.max_new_tokens} leaves no room for a prompt in its "
            f"max_positions {max_positions}"
        )

    def files(self) -> dict[str, Path]:
        """Return the local item files of all sets, with keys {set}/{file name without ending}."""
        return {
            f"{name}/{path.name.partition('.jsonl')[0]}": path
            for name in self.tasks
            for path in set_files(name, self.data)
        }

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Return the sizes that determine the suite's memory: a batch of prompts and outputs."""
        batch, lower = self.batch_size, self.lower("max_new_tokens")
        total = min(model.max_positions, LONGEST_ITEM + self.max_new_tokens)
        return Reading(batch, min(total, LONGEST_ITEM), total, batch, lower, cached=True)


class Options(BaseOptions):
    """Report options: accuracy by set, or its mean over sets by training tokens."""

    by: Literal["set", "tokens"] = setting(
        "set", meaning="Accuracy by set, or its mean over the sets by tokens of training"
    )
