"""LoRA, as peft has it (Hu et al. 2022, arXiv 2106.09685)."""

from typing import Literal

from difftransformer.config.base import setting
from difftransformer.models.language_model import CausalModel
from difftransformer.training.method import Method, MethodSettings, Task


class Settings(MethodSettings):
    """Low-rank updates of all matrices but the embeddings."""

    method: Literal["lora"] = setting(meaning="Low-rank updates of all matrices in layers")
    rank: int = setting(8, meaning="r", source="arXiv 2505.16333, table 1: 8 and 32", gt=0)
    alpha: int | None = setting(
        None, meaning="Scale of the update is alpha / r; null: alpha is 2 r", gt=0
    )


def prepare(model: CausalModel, settings: Settings, task: Task) -> Method:
    """Return the training of low-rank updates."""
    from peft import LoraConfig

    from difftransformer.training.peft_method import PeftMethod

    config = LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha or 2 * settings.rank, target_modules="all-linear"
    )
    return PeftMethod(model, config, task)
