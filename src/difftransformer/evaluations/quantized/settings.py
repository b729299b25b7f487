"""What is rounded while another suite is repeated, and what a section shows of it."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from difftransformer.config import evaluation
from difftransformer.config.base import Settings, distinct, setting
from difftransformer.config.evaluations import AnySuite

Quantity = Literal["attention_logits", "weights", "kv_cache"]
Bits = Annotated[int, Field(ge=2, le=16)]
_OF_THE_REPEATED = ("batch_size", "device", "precision")


def score_name(what: Quantity | None = None, bits: int | None = None) -> str:
    """Metric of the score with numbers rounded to so many bits; None: with nothing rounded."""
    return "score_unquantized" if bits is None else f"score_{what}_b{bits}"


class Granularity(Settings):
    """What shares one scale, of weights those of one output, of the cache a position of a head."""

    attention_logits: Literal["head", "row"] = setting(
        "head",
        meaning="The logits of one sequence and softmax map, or those of one query. Under `head` a "
        "score depends on the batch where its questions are filled up to the longest.",
        source="not stated by arXiv 2410.05258v2",
    )


class Suite(evaluation.Suite):
    """Another suite, repeated with attention logits, weights or the key/value cache rounded.

    Logits, as in section 3.7 of arXiv 2410.05258v2, by dynamic absmax before each softmax, of both
    maps of a differential head. Ours, and by torchao, are the matrices of the layers, without the
    embedding and the output matrix, and keys, with their positions in them, and values. Rounding is
    fake: the numbers lie on the grid of so many bits and are computed with as they are otherwise.
    Attention is eager throughout, the only implementation that has logits to round.
    """

    repeats: ClassVar[str | None] = "measured"

    kind: Literal["quantized"] = setting(meaning="Which evaluation the suite is.")
    measured: str = setting(
        meaning="Suite of this file that is repeated, as the scale has it; its device, precision "
        "and batch size hold here too."
    )
    score: str = setting(
        meaning="Metric of that suite which tells how good a model is; all others stand in the "
        "details."
    )
    chance: str | None = setting(
        None, meaning="Metric of that suite which is the score of guessing; null: there is none."
    )
    bits: Annotated[list[Bits], Field(min_length=2), AfterValidator(distinct)] = setting(
        [16, 8, 6, 4],
        meaning="Bits of a number, its sign among them.",
        source="arXiv 2410.05258v2, figure 8",
    )
    granularity: Granularity = setting(Granularity(), meaning="What shares one scale.")
    suite: SkipJsonSchema[AnySuite | None] = setting(
        None, meaning="The settings of `measured`, filled in when a scale is resolved."
    )
    batch_size: SkipJsonSchema[int] = setting(32, meaning="That of `measured`.")
    device: SkipJsonSchema[Literal["auto", "cpu", "cuda"]] = setting(
        "auto", meaning="That of `measured`."
    )
    precision: SkipJsonSchema[Literal["fp32", "bf16"]] = setting(
        "fp32", meaning="That of `measured`."
    )
    backend: SkipJsonSchema[Literal["eager"]] = setting(
        "eager", meaning="The only implementation that has logits to round."
    )

    @model_validator(mode="before")
    @classmethod
    def _run_as_repeated(cls, raw: Any) -> Any:
        suite = raw.get("suite") if isinstance(raw, Mapping) else None
        if not isinstance(suite, Mapping):
            return raw
        theirs = {key: suite[key] for key in _OF_THE_REPEATED if key in suite}
        for key, value in theirs.items():
            if raw.get(key, value) != value:
                raise ValueError(
                    f"{key}: is that of '{raw.get('measured')}', {value}: set it there"
                )
        return {**raw, **theirs}

    @property
    def asked(self) -> evaluation.Suite:
        """The suite that is repeated."""
        assert self.suite is not None, f"{self.measured} is not resolved"
        return self.suite


class Options(evaluation.Options):
    """What a section shows of it."""

    what: Quantity = setting(meaning="What is rounded.")
    better: Literal["lower", "higher"] = setting(
        "lower", meaning="Whether a lower or a higher score is better."
    )
    percent: bool = setting(False, meaning="Whether the score is a share, shown in %.")
    published: str | None = setting(
        None, meaning="Suite whose score is published; ours of others stand beside no number."
    )
