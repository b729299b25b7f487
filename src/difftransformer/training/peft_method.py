"""Adaptations that peft puts into a model: what they train, how they fold, what is beside it."""

from collections.abc import Mapping
from typing import Any

import torch
from peft import get_peft_model
from peft.utils import get_peft_model_state_dict
from torch import Tensor

from difftransformer.models.language_model import HFCausalLM
from difftransformer.training.method import Adapter, Method, Task
from difftransformer.training.optimizer import AdamW


class PeftMethod(Method):
    """A model with an adapter of peft in it, which AdamW trains.

    Args:
        model: The model; its modules are changed in place.
        config: Settings of an adapter as peft takes them.
        task: What it is trained for.
        replaced: Parameters of the adapter that stand in the place of the model's own, which are
            not extra ones.
        moves_base: Whether the adapter takes its start out of the model's own matrices.
    """

    def __init__(
        self,
        model: HFCausalLM,
        config: Any,
        task: Task,
        *,
        replaced: str | None = None,
        moves_base: bool = False,
    ) -> None:
        self._model, self._moves_base = model, moves_base
        before = torch.get_rng_state()
        torch.manual_seed(task.seed)  # what peft draws depends on the seed alone
        self.peft: Any = get_peft_model(model.inner, config)
        torch.set_rng_state(before)
        super().__init__(AdamW(model.named_parameters(), task.training))
        self.extra_parameters = sum(
            parameter.numel()
            for name, parameter in self.peft.named_parameters()
            if parameter.requires_grad and (replaced is None or replaced not in name)
        )

    def residuals(self) -> dict[str, Tensor]:
        """The model's own matrices, where they are not those it came with."""
        if not self._moves_base:
            return {}
        known = self._model.named_parameters()
        return {name: parameter for name, parameter in known if name.endswith("base_layer.weight")}

    def fold(self) -> None:
        """Merge the adapter into the model's own matrices."""
        self.peft.merge_and_unload()

    def adapter(self) -> Adapter:
        """The adapter as peft saves it."""
        tensors: Mapping[str, Tensor] = get_peft_model_state_dict(self.peft)
        copied = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        return Adapter(copied, self.peft.peft_config["default"].to_dict())
