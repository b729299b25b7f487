"""PiSSA by peft (Meng et al. 2024, 2404.02948): LoRA initialized by the largest singular values."""

from typing import Literal

from difftransformer.config.base import setting
from difftransformer.models.config import ModelConfig
from difftransformer.models.language_model import HFCausalLM
from difftransformer.models.sizes import llama_matrices
from difftransformer.training.method import Method, MethodSettings, Task


class Settings(MethodSettings):
    """Settings of PiSSA: low-rank updates that start as the principal part of each matrix."""

    method: Literal["pissa"] = setting(meaning="LoRA that starts on the largest singular values")
    rank: int = setting(32, meaning="r", source="arXiv 2505.16333, section 4.1: 32", gt=0)

    def trainable_parameters(self, model: ModelConfig) -> int:
        """Return the number of trainable parameters: two low-rank factors per matrix."""
        return model.num_layers * self.rank * sum(map(sum, llama_matrices(model).values()))


def prepare(model: HFCausalLM, settings: Settings, task: Task) -> Method:
    """Add PiSSA to the model, and return the method that trains the principal parts."""
    from peft import LoraConfig

    from difftransformer.training.peft_method import PeftMethod

    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.rank,
        target_modules="all-linear",
        init_lora_weights="pissa",
    )
    return PeftMethod(model, config, task, moves_base=True)
