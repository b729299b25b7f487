"""Size a model like another one, by the width of its feed-forward."""

from typing import Literal, NamedTuple

import torch

from difftransformer.config.model import ModelConfig
from difftransformer.errors import ConfigError
from difftransformer.models.flops import training_flops
from difftransformer.models.transformer import Transformer

Measure = Literal["parameters", "training_flops"]
_WORDS: dict[Measure, str] = {
    "parameters": "parameters",
    "training_flops": "FLOPs of training for each token",
}


class Match(NamedTuple):
    """What was chosen, and how near it comes."""

    by: Measure
    ffn_dim: int
    size: int
    """Parameters, or operations of training a token, of the sized model."""
    wanted: int
    """Those of the one it is sized after."""

    @property
    def residual(self) -> float:
        """How much larger the sized model is, as a share: negative where it is smaller."""
        return self.size / self.wanted - 1


def match_ffn(
    config: ModelConfig, wanted: ModelConfig, by: Measure, multiple_of: int, seq_len: int
) -> Match:
    """Return the ffn_dim that makes ``config`` as large as ``wanted``.

    Args:
        config: The model to size; its own ffn_dim does not count.
        wanted: The model to be like.
        by: Equal parameters, or equal operations of training for each token.
        multiple_of: The ffn_dim is the nearest multiple, in dimensions.
        seq_len: Length of a training sequence, in positions; for operations alone.

    Raises:
        ConfigError: No feed-forward would be left.
    """

    def size(ffn_dim: int) -> int:
        return _size(config.model_copy(update={"ffn_dim": ffn_dim}), by, seq_len)

    goal = _size(wanted, by, seq_len)
    step = size(2 * multiple_of) - size(multiple_of)  # both measures are linear in ffn_dim
    steps = 1 + round((goal - size(multiple_of)) / step)
    if steps < 1:
        raise ConfigError(
            f"without any feed-forward it has more {_WORDS[by]} than {goal:,}; make its attention "
            f"smaller, or match it to a larger run"
        )
    return Match(by, steps * multiple_of, size(steps * multiple_of), goal)


def _size(config: ModelConfig, by: Measure, seq_len: int) -> int:
    return parameters(config) if by == "parameters" else training_flops(config, seq_len)


def parameters(config: ModelConfig) -> int:
    """Return what `transformer.count_parameters` does, from one layer: all are alike."""
    with torch.device("meta"):
        model = Transformer(config.model_copy(update={"num_layers": 1}))
    whole = sum(parameter.numel() for parameter in model.parameters())
    layer = sum(parameter.numel() for parameter in model.layers.parameters())
    return whole + (config.num_layers - 1) * layer
