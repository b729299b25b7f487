"""Settings of the suite that repeats another one with rounded numbers."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic.json_schema import SkipJsonSchema

from difftransformer.config.base import Settings, setting
from difftransformer.config.suites.base import distinct
from difftransformer.config.suites.language_understanding import LanguageUnderstanding
from difftransformer.config.suites.needles import Needles
from difftransformer.config.suites.nll_by_position import NllByPosition
from difftransformer.config.suites.recall import Recall
from difftransformer.config.suites.validation_slices import ValidationSlices

MeasuredConfig = Annotated[
    ValidationSlices | Recall | LanguageUnderstanding | NllByPosition | Needles,
    Field(discriminator="kind"),
]
"""Any suite that can be repeated: those that give one number a model is better or worse by."""

Quantity = Literal["attention_logits", "weights", "kv_cache"]
Bits = Annotated[int, Field(ge=2, le=16)]


class Granularity(Settings):
    """What shares one scale."""

    attention_logits: Literal["tensor", "head", "row"] = setting(
        "head",
        meaning="All logits of a call, those of one sequence and softmax map, or those of one "
        "query. Under `tensor` a score depends on the batch.",
        source="not stated by arXiv 2410.05258v2",
    )
    weights: Literal["tensor", "row"] = setting(
        "row", meaning="A whole matrix, or the weights of one output.", source="torchao: row"
    )
    kv_cache: Literal["tensor", "head", "row"] = setting(
        "row",
        meaning="All keys of a layer that are stored in one call, and all its values; those of one "
        "sequence and head; or one position of a head.",
    )


class Quantised(Settings):
    """Another suite, repeated with attention logits, weights or the key/value cache rounded.

    Rounding is fake: the numbers lie on the grid of so many bits and are computed with as they are
    otherwise. Attention is eager throughout, the only implementation that has logits to round.
    """

    kind: Literal["quantised"] = setting(meaning="Which measurement the suite is.")
    measured: str = setting(
        meaning="Suite of this file that is repeated, as the scale has it; its device, precision "
        "and batch size hold here too."
    )
    score: str = setting(
        meaning="Metric of that suite which tells how good a model is; all others stand in the "
        "details.",
    )
    chance: str | None = setting(
        None, meaning="Metric of that suite which is the score of guessing; null: there is none."
    )
    what: Annotated[list[Quantity], Field(min_length=1), AfterValidator(distinct)] = setting(
        ["attention_logits", "weights", "kv_cache"],
        meaning="What is rounded, one at a time. attention_logits: dynamic absmax before each "
        "softmax, of both maps of a differential head; weights: matrices of the layers, not the "
        "embedding and the output matrix; kv_cache: keys, with their positions in them, and "
        "values. The last two by torchao.",
        source="arXiv 2410.05258v2, section 3.7 and figure 8, rounds logits; weights and cache are "
        "ours",
    )
    bits: Annotated[list[Bits], Field(min_length=2), AfterValidator(distinct)] = setting(
        [16, 8, 6, 4],
        meaning="Bits of a number, its sign among them.",
        source="arXiv 2410.05258v2, figure 8",
    )
    granularity: Granularity = setting(Granularity(), meaning="What shares one scale.")
    suite: SkipJsonSchema[MeasuredConfig | None] = setting(
        None, meaning="The settings of `measured`, filled in when a scale is resolved."
    )

    @property
    def repeated(self) -> Any:
        """The suite that is repeated."""
        assert self.suite is not None, f"{self.measured} is not resolved"
        return self.suite

    @property
    def device(self) -> Literal["auto", "cpu", "cuda"]:
        """Where to evaluate."""
        device: Literal["auto", "cpu", "cuda"] = self.repeated.device
        return device

    @property
    def precision(self) -> Literal["fp32", "bf16"]:
        """Precision of the computation."""
        precision: Literal["fp32", "bf16"] = self.repeated.precision
        return precision

    @property
    def backend(self) -> Literal["eager"]:
        """Attention implementation."""
        return "eager"
