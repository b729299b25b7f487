"""Training with Dex: AdamW, and lambda moves with the steps."""

from torch import Tensor

from difftransformer.convert.dex import DexConfig
from difftransformer.models.config import lambda_metric
from difftransformer.models.language_model import HFCausalLM
from difftransformer.training.method import Task
from difftransformer.training.peft_method import PeftMethod


class DexMethod(PeftMethod):
    """Dex in a model."""

    def __init__(self, model: HFCausalLM, config: DexConfig, task: Task) -> None:
        super().__init__(model, config, task, replaced="dex_weight")

    def step(self, lr: float, found_inf: Tensor | None = None) -> None:
        """Update the parameters, then set lambda to that of the next step."""
        super().step(lr, found_inf)
        self.peft.base_model.advance()

    def readings(self) -> dict[str, float]:
        """lambda_l{l}: lambda of each layer."""
        return {
            lambda_metric(layer.layer): layer.current_lambda("default").item()
            for layer in self.peft.base_model.output_layers()
        }

    def residuals(self) -> dict[str, Tensor]:
        """Chosen heads, and steps done."""
        return {
            f"{name}.{layer.layer}": getattr(layer, name)["default"]
            for layer in self.peft.base_model.output_layers()
            for name in ("dex_heads", "dex_step")
        }
