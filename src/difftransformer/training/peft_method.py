"""Adaptations by adapters of peft."""

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
    """Training of a model's peft adapter with AdamW.

    Args:
        model: The model; its modules are changed in place.
        config: peft's settings of the adapter.
        task: Training settings, seed and text.
        replaced: Part of the names of adapter parameters that replace parameters of the model, so
            that they do not count as extra.
        moves_base: Whether the adapter changes the model's matrices at the start, as PiSSA does.
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
        torch.manual_seed(task.seed)  # peft's random numbers depend only on the seed
        self.peft: Any = get_peft_model(model.inner, config)
        torch.set_rng_state(before)
        super().__init__(AdamW(model.named_parameters(), task.training))
        self.extra_parameters = sum(
            parameter.numel()
            for name, parameter in self.peft.named_parameters()
            if parameter.requires_grad and (replaced is None or replaced not in name)
        )

    def extra_tensors(self) -> dict[str, Tensor]:
        """Return the model's matrices by name if the adapter has changed them."""
        if not self._moves_base:
            return {}
        suffix = "base_layer.weight"
        return {n: p for n, p in self._model.named_parameters() if n.endswith(suffix)}

    def merge(self) -> None:
        """Merge the adapter into the model's matrices."""
        self.peft.merge_and_unload()

    def adapter(self) -> Adapter:
        """Return the adapter in the form in which peft saves it."""
        tensors: Mapping[str, Tensor] = get_peft_model_state_dict(self.peft)
        copied = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        return Adapter(copied, self.peft.peft_config["default"].to_dict())
