"""Which scores stand beside the costs of a variant, and what its sizes come to."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from difftransformer.config.base import Name, Settings, setting
from difftransformer.config.evaluation import Fact
from difftransformer.config.evaluation import Options as BaseOptions
from difftransformer.config.run import RunConfig

CACHE_BYTES = 2
"""Bytes of a number in the cache: 16 bits, as models are served."""


class Score(Settings):
    """A metric of a suite, as a column."""

    header: str = setting(meaning="What stands above it.")
    suite: Name = setting(meaning="Suite of the section, or one that the rows' twins are asked.")
    metric: str = setting(meaning="Metric of the suite's results.")
    decimals: int = setting(meaning="Decimals of a mean.", ge=0)
    of_paired_run: bool = setting(False, meaning="Whether it is of the row's twin.")
    compared: bool = setting(
        False, meaning="Whether its paired difference to the compared row is a column, too."
    )
    panel: Literal["value", "difference"] | None = setting(
        None, meaning="What of it has a panel of the figure; null: nothing."
    )
    unit: str = setting("", meaning="Unit on the axis of its panel.")

    @property
    def name(self) -> str:
        """Its header without the arrow to what is better."""
        return self.header.rstrip(" ↑↓")


class Options(BaseOptions):
    """What a section shows beside parameters, feed-forward, cache and operations."""

    suites: ClassVar[int] = 2
    paired: ClassVar[bool] = True

    scores: dict[str, Score] = setting(meaning="Columns by id, from left to right.", min_length=1)
    note: str = setting(meaning="What a reader is told of the scores.")
    timed_by: Name | None = setting(
        None,
        meaning="Evaluation whose timings of the rows, each with the sizes of its run, are shown "
        "where the scale makes them; null: none.",
    )

    @property
    def paired_suites(self) -> Sequence[str]:
        """Suites of the scores of twins."""
        return list(dict.fromkeys(one.suite for one in self.scores.values() if one.of_paired_run))

    @property
    def timing(self) -> str | None:  # type: ignore[override]
        """See `timed_by`."""
        return self.timed_by

    def facts(self, run: RunConfig) -> dict[str, Fact]:
        """Parameters, bytes of KV cache and operations of training a token."""
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
