"""Settings of the decoding job (DIFF V2), and what it gets."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from difftransformer.config.base import Settings, setting
from difftransformer.config.model import ModelConfig
from difftransformer.config.suites.base import distinct
from difftransformer.config.timing import Backends, TimingConfig

Sizes = Annotated[list[Annotated[int, Field(gt=0)]], Field(min_length=1), AfterValidator(distinct)]


class DecodingConfig(TimingConfig):
    """What is timed at a scale: every row writes tokens at each batch size and context length."""

    model: dict[str, Any] = setting(
        {}, meaning="Settings of the model that differ from the rows' own, see ModelConfig."
    )
    batches: Sizes = setting(meaning="Sequences that are written at one time.", unit="sequences")
    contexts: Sizes = setting(
        meaning="Positions in the cache before the first new token.", unit="tokens"
    )
    new_tokens: int = setting(16, meaning="Tokens written in one turn.", unit="tokens", gt=0)
    backends: Backends = setting(
        ["sdpa"], meaning="Attention implementations; the fastest for a row counts."
    )
    precision: Literal["fp32", "bf16"] = setting("fp32", meaning="Precision of weights and cache.")


class DecodingSlice(Settings):
    """The decoding job at one scale, resolved."""

    scale: str = setting(meaning="Name of the scale.")
    config: DecodingConfig = setting(meaning="What is timed, and how often.")
    models: dict[str, ModelConfig] = setting(meaning="Row -> model.")
