"""GaLore: every parameter, the moments of the layers' matrices in a low-rank space."""

from typing import Literal

from difftransformer.config.base import setting
from difftransformer.models.language_model import CausalModel
from difftransformer.training.method import Method, MethodSettings, Task


class Settings(MethodSettings):
    """Rank, refreshing and scale, with the defaults of transformers."""

    method: Literal["galore"] = setting(
        meaning="Every parameter, moments of the layers' matrices by their singular vectors"
    )
    rank: int = setting(128, meaning="r", source="transformers", gt=0)
    gap: int = setting(
        200, meaning="Steps after which the space is made anew", source="transformers", gt=0
    )
    scale: float = setting(0.25, meaning="Factor of projected updates", source="transformers", gt=0)


def prepare(model: CausalModel, settings: Settings, task: Task) -> Method:
    """Return the training of all parameters."""
    from difftransformer.training.low_rank import LowRankAdamW, LowRankSettings

    low = LowRankSettings("galore", settings.rank, settings.gap, settings.scale, task.seed)
    matrices = model.layer_matrices()
    return Method(LowRankAdamW(model.named_parameters(), matrices, task.training, low))
