"""LoRA by peft (Hu et al. 2022, arXiv 2106.09685)."""

from typing import Annotated, Literal

from pydantic import Field

from difftransformer.config.base import setting
from difftransformer.models.config import ModelConfig
from difftransformer.models.language_model import HFCausalLM
from difftransformer.models.sizes import llama_matrices
from difftransformer.training.method import Method, MethodSettings, Task
from difftransformer.training.methods import dex


class Settings(MethodSettings):
    """Settings of LoRA: low-rank updates of all matrices except the embeddings."""

    method: Literal["lora"] = setting(meaning="Low-rank updates of all matrices in layers")
    rank: Literal["dex"] | Annotated[int, Field(gt=0)] = setting(
        8,
        meaning="r; dex: that at which as many parameters train as Dex trains, one W_D a layer",
        source="arXiv 2505.16333, table 1: 8 and 32",
    )
    alpha: int | None = setting(
        None, meaning="Scale of the update is alpha / r; null: alpha is 2 r", gt=0
    )

    def trainable_parameters(self, model: ModelConfig) -> int:
        """Return the number of trainable parameters: two low-rank factors per matrix."""
        sides = model.num_layers * sum(map(sum, llama_matrices(model).values()))
        if self.rank != "dex":
            return sides * self.rank
        return sides * max(1, round(dex.Settings(method="dex").trainable_parameters(model) / sides))


def prepare(model: HFCausalLM, settings: Settings, task: Task) -> Method:
    """Add LoRA to the model, and return the method that trains its low-rank factors."""
    from peft import LoraConfig

    from difftransformer.convert.dex import trained_parameters
    from difftransformer.training.peft_method import PeftMethod

    if settings.rank == "dex":
        shapes = [model.get_parameter(name).shape for name in model.linear_weight_names()]
        rank = max(1, round(trained_parameters(model.inner) / sum(map(sum, shapes))))
    else:
        rank = settings.rank
    config = LoraConfig(r=rank, lora_alpha=settings.alpha or 2 * rank, target_modules="all-linear")
    return PeftMethod(model, config, task)
