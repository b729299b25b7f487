"""Report options of variants: scores by suite, and sizes of their models."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from difftransformer.config.base import Name, Settings, setting
from difftransformer.config.evaluation import Fact
from difftransformer.config.evaluation import Options as BaseOptions
from difftransformer.config.run import RunConfig

CACHE_BYTES = 2
"""Bytes per number in the KV cache: 16 bits, as in serving."""


class Score(Settings):
    """A metric of a suite, shown as a column of the table."""

    header: str = setting(meaning="Header of the column.")
    suite: Name = setting(meaning="Suite of the section, or one of the rows' paired runs.")
    metric: str = setting(meaning="Metric of the suite's results.")
    decimals: int = setting(meaning="Decimals of a mean.", ge=0)
    of_paired_run: bool = setting(
        False, meaning="Whether the metric is that of the row's paired run."
    )
    compared: bool = setting(
        False, meaning="Whether its paired difference to the baseline is a column."
    )
    panel: Literal["value", "difference"] | None = setting(
        None, meaning="What a panel of the figure shows; null: no panel."
    )
    unit: str = setting("", meaning="Unit on the axis of its panel.")

    @property
    def name(self) -> str:
        """Header of the column without its arrow."""
        return self.header.rstrip(" ↑↓")


class Options(BaseOptions):
    """Report options: scores shown beside parameters, FFN size, KV cache and FLOPs."""

    suites: ClassVar[int] = 2
    paired: ClassVar[bool] = True

    scores: dict[str, Score] = setting(meaning="Columns by id, from left to right.", min_length=1)
    note: str = setting(meaning="Note on the scores.")
    timed_by: Name | None = setting(
        None,
        meaning="Evaluation whose timings of the rows, each with the sizes of its run, are shown "
        "if the scale has them; null: none.",
    )

    @property
    def paired_suites(self) -> Sequence[str]:
        """Names of the suites with scores of paired runs."""
        return list(
            dict.fromkeys(score.suite for score in self.scores.values() if score.of_paired_run)
        )

    @property
    def timing(self) -> str | None:  # type: ignore[override]
        """Name of the evaluation whose timings the section shows, or None."""
        return self.timed_by

    def facts(self, run: RunConfig) -> dict[str, Fact]:
        """Return a run's parameters, FFN size, and KV cache bytes and training FLOPs per token."""
        from difftransformer.models.sizes import (
            count_parameters,
            kv_cache_numel_per_token,
            training_flops,
        )

        model = run.model
        return {
            "parameters": count_parameters(model),
            "ffn_dim": model.ffn_dim,
            "kv_bytes": CACHE_BYTES * kv_cache_numel_per_token(model),
            "training_flops": training_flops(model, run.training.seq_len),
        }
