"""KVO, the control of Dex (ours): trains W_K, W_V and W_O as Dex does, without W_D."""

from typing import Literal

from difftransformer.config.base import setting
from difftransformer.models.config import ModelConfig
from difftransformer.models.language_model import HFCausalLM
from difftransformer.models.sizes import kvo_parameters
from difftransformer.training.method import Method, MethodSettings, Task


class Settings(MethodSettings):
    """Settings of KVO: none besides the method's name."""

    method: Literal["kvo"] = setting(meaning="W_K, W_V and W_O, by AdamW: Dex without its W_D")

    def trainable_parameters(self, model: ModelConfig) -> int:
        """Return the number of trainable parameters: three matrices per layer."""
        return model.num_layers * kvo_parameters(model)


def prepare(model: HFCausalLM, settings: Settings, task: Task) -> Method:
    """Return the method that trains the key, value and output projections."""
    from difftransformer.convert.dex import DexConfig
    from difftransformer.training.peft_method import PeftMethod

    return PeftMethod(model, DexConfig(heads="none"), task, replaced="dex_weight")
