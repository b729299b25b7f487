"""Settings of the evaluation of attention sinks."""

from typing import ClassVar, Literal

from pydantic import model_validator

from difftransformer.config.base import setting
from difftransformer.config.evaluation import AnyModel, WindowSuite

THRESHOLD = 0.3
"""A head is a sink if the first token gets more than this share of its attention (Gu et al. 2024,
When Attention Sink Emerges, arXiv 2410.10781)."""


class Suite(AnyModel, WindowSuite):
    """Suite of attention on the first token of a window.

    For shares, a row's absolute weights are divided by their sum, so that signed rows, and rows
    that do not sum to 1, are comparable. The weight itself is reported too.
    """

    map_bytes: ClassVar[float] = 34.0

    kind: Literal["sinks"] = setting(meaning="Which evaluation the suite is.")
    first_query: int = setting(
        17,
        meaning="First position whose attention counts; earlier ones have few tokens to attend to.",
        unit="tokens",
        gt=1,
    )

    @model_validator(mode="after")
    def _check_first_query(self) -> "Suite":
        if self.first_query > self.seq_len:
            raise ValueError(f"first_query {self.first_query} is beyond seq_len {self.seq_len}")
        return self
