"""GaLore: all parameters, moments of the layers' matrices in a low-rank space."""

from typing import Literal

from difftransformer.config.base import setting
from difftransformer.models.language_model import HFCausalLM
from difftransformer.training.low_rank import LowRankMethodSettings, low_rank_method
from difftransformer.training.method import Method, Task


class Settings(LowRankMethodSettings):
    """Settings of GaLore: rank, gap (steps between projections) and scale."""

    method: Literal["galore"] = setting(
        meaning="Every parameter, moments of the layers' matrices by their singular vectors"
    )
    scale: float = setting(0.25, meaning="Factor of projected updates", source="transformers", gt=0)


def prepare(model: HFCausalLM, settings: Settings, task: Task) -> Method:
    """Return the method that trains all parameters with GaLore."""
    return low_rank_method("galore", model, settings, settings.scale, task)
