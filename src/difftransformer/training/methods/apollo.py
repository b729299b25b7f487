"""APOLLO: all parameters, updates of the layers' matrices scaled by moments in a random space."""

from typing import Literal

from difftransformer.config.base import setting
from difftransformer.models.language_model import HFCausalLM
from difftransformer.training.low_rank import LowRankMethodSettings, low_rank_method
from difftransformer.training.method import Method, Task


class Settings(LowRankMethodSettings):
    """Settings of APOLLO: rank, gap (steps between projections) and scale."""

    method: Literal["apollo"] = setting(
        meaning="Every parameter, channels scaled by moments in a random space"
    )
    scale: float = setting(
        1.0, meaning="Square of the factor of updates", source="transformers", gt=0
    )


def prepare(model: HFCausalLM, settings: Settings, task: Task) -> Method:
    """Return the method that trains all parameters with APOLLO."""
    return low_rank_method("apollo", model, settings, settings.scale, task)
