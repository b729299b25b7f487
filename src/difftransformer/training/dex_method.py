"""Training with Dex by AdamW, with its lambda schedule."""

from torch import Tensor

from difftransformer.convert.dex import DexConfig
from difftransformer.models.config import lambda_metric
from difftransformer.models.language_model import HFCausalLM
from difftransformer.training.method import Task
from difftransformer.training.peft_method import PeftMethod


class DexMethod(PeftMethod):
    """Training with a Dex adapter by AdamW, with the schedule of lambda."""

    def __init__(self, model: HFCausalLM, config: DexConfig, task: Task) -> None:
        super().__init__(model, config, task, replaced="dex_weight")

    def step(self, lr: float, found_inf: Tensor | None = None) -> None:
        """Update the parameters from their gradients, then advance lambda's schedule a step."""
        super().step(lr, found_inf)
        self.peft.base_model.advance()

    def extra_metrics(self) -> dict[str, float]:
        """Return lambda of each layer under the history columns lambda_l{l}."""
        return {
            lambda_metric(layer.layer): layer.current_lambda("default").item()
            for layer in self.peft.base_model.output_layers()
        }

    def extra_tensors(self) -> dict[str, Tensor]:
        """Return the selected heads and the number of steps done, by name, for checkpoints."""
        return {
            f"{name}.{layer.layer}": getattr(layer, name)["default"]
            for layer in self.peft.base_model.output_layers()
            for name in ("dex_heads", "dex_step")
        }
