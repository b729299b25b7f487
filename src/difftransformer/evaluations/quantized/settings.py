"""Settings of the quantized evaluation: the suite that is repeated, bits and granularity."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from difftransformer.config import evaluation
from difftransformer.config.base import Settings, distinct, setting
from difftransformer.config.evaluations import AnySuite

Quantity = Literal["attention_logits", "weights", "kv_cache"]
Bits = Annotated[int, Field(ge=2, le=16)]
_INHERITED = ("batch_size", "device", "precision")


def score_name(quantity: Quantity | None = None, bits: int | None = None) -> str:
    """Return the name of the score metric for a quantity quantized to ``bits``.

    Without ``bits`` it is the name of the unquantized model's score.
    """
    return "score_unquantized" if bits is None else f"score_{quantity}_b{bits}"


class Granularity(Settings):
    """Groups of values that share a scale.

    Only the group of attention logits is a setting. Weights have one scale per output, the KV
    cache has one scale per head and position.
    """

    attention_logits: Literal["head", "row"] = setting(
        "head",
        meaning="`head`: the logits of one sequence and softmax map share a scale; `row`: those of "
        "one query. With `head` a score depends on the padding of its batch.",
        source="not stated by arXiv 2410.05258v2",
    )


class Suite(evaluation.Suite):
    """Suite that repeats another suite with quantized attention logits, weights or KV cache.

    Logits are quantized by dynamic absmax before each softmax, in both maps of a differential head
    (arXiv 2410.05258v2, section 3.7). We add, with torchao, the matrices of the layers (not the
    embedding and the output matrix), and the KV cache, with keys after the rotary embedding.
    Quantization is fake: values are rounded to the grid but stored and multiplied as floats.
    Attention is always eager, the only backend that exposes its logits.
    """

    repeats: ClassVar[str | None] = "repeated_suite"

    kind: Literal["quantized"] = setting(meaning="Which evaluation the suite is.")
    repeated_suite: str = setting(
        meaning="Suite of this file that is repeated, with its device, precision and batch size."
    )
    score: str = setting(
        meaning="Metric of that suite used as the score; all others are in the details."
    )
    chance: str | None = setting(
        None, meaning="Metric of that suite with the score of guessing; null: none."
    )
    bits: Annotated[list[Bits], Field(min_length=2), AfterValidator(distinct)] = setting(
        [16, 8, 6, 4],
        meaning="Bits per value, including the sign.",
        source="arXiv 2410.05258v2, figure 8",
    )
    granularity: Granularity = setting(Granularity(), meaning="Values that share a scale.")
    suite: SkipJsonSchema[AnySuite | None] = setting(
        None, meaning="Settings of `repeated_suite`, filled in when a scale is resolved."
    )
    batch_size: SkipJsonSchema[int] = setting(32, meaning="That of `repeated_suite`.")
    device: SkipJsonSchema[Literal["auto", "cpu", "cuda"]] = setting(
        "auto", meaning="That of `repeated_suite`."
    )
    precision: SkipJsonSchema[Literal["fp32", "bf16"]] = setting(
        "fp32", meaning="That of `repeated_suite`."
    )
    backend: SkipJsonSchema[Literal["eager"]] = setting(
        "eager", meaning="The only backend that exposes its logits."
    )

    @model_validator(mode="before")
    @classmethod
    def _inherit_settings(cls, raw: Any) -> Any:
        suite = raw.get("suite") if isinstance(raw, Mapping) else None
        if not isinstance(suite, Mapping):
            return raw
        inherited = {key: suite[key] for key in _INHERITED if key in suite}
        for key, value in inherited.items():
            if raw.get(key, value) != value:
                raise ValueError(
                    f"{key}: is inherited from '{raw.get('repeated_suite')}', {value}: set it there"
                )
        return {**raw, **inherited}

    @property
    def base_suite(self) -> evaluation.Suite:
        """Settings of the suite that is repeated."""
        assert self.suite is not None, f"{self.repeated_suite} is not resolved"
        return self.suite


class Options(evaluation.Options):
    """Report options: the quantized quantity of a section, and its scores."""

    quantity: Quantity = setting(meaning="Quantity that is quantized.")
    better: Literal["lower", "higher"] = setting(
        "lower", meaning="Whether a lower or a higher score is better."
    )
    percent: bool = setting(False, meaning="Whether the score is a fraction, shown in %.")
    published: str | None = setting(
        None,
        meaning="Suite whose score is published; scores of other suites show no published values.",
    )
