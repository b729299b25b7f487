"""AdamW with weight decay on matrices only.

`torch.optim.AdamW` imports torch's compiler when it is created: 2.6 s of CPU on top of the 2.0 s of
``import torch``, in every job. This calls the same fused kernel through torch's functional
interface.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from difftransformer.config.training import TrainingConfig

_STATE = ("exp_avg", "exp_avg_sq", "adam_step")


@dataclass
class _Slot:
    """A parameter and its AdamW state, zeros at first."""

    name: str
    parameter: nn.Parameter

    def __post_init__(self) -> None:
        self.exp_avg = torch.zeros_like(self.parameter, requires_grad=False)
        self.exp_avg_sq = torch.zeros_like(self.parameter, requires_grad=False)
        self.adam_step = torch.zeros((), dtype=torch.float32, device=self.parameter.device)


class AdamW:
    """Fused AdamW (Loshchilov and Hutter 2019) over the trainable parameters of a model.

    Weight decay acts on parameters of two or more dimensions (projections, embeddings). Gains,
    biases and lambda vectors have none: pulling them to zero would change what they parameterize.

    Args:
        parameters: Pairs of name and parameter; those without ``requires_grad`` are left out.
        config: Training settings; the learning rate is an argument of `step`.
    """

    def __init__(
        self, parameters: Iterable[tuple[str, nn.Parameter]], config: TrainingConfig
    ) -> None:
        self._config = config
        groups = zip(split_decay(parameters), (config.weight_decay, 0.0), strict=True)
        self._groups = [
            ([_Slot(name, p) for name, p in group.items()], decay) for group, decay in groups
        ]

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Parameters that the optimizer updates."""
        return [slot.parameter for slots, _ in self._groups for slot in slots]

    @torch.no_grad()
    def step(self, lr: float, found_inf: Tensor | None = None) -> None:
        """Update the parameters from their gradients, and set the gradients to None."""
        beta1, beta2 = self._config.betas
        for slots, decay in self._groups:
            due = [slot for slot in slots if slot.parameter.grad is not None]
            adamw(
                [slot.parameter for slot in due],
                [slot.parameter.grad for slot in due if slot.parameter.grad is not None],
                [slot.exp_avg for slot in due],
                [slot.exp_avg_sq for slot in due],
                [],
                [slot.adam_step for slot in due],
                fused=True,
                found_inf=found_inf,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=lr,
                weight_decay=decay,
                eps=self._config.eps,
                maximize=False,
            )
        for parameter in self.parameters:
            parameter.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimizer state by names ``{key}.{parameter name}``, without copying."""
        return {
            f"{key}.{slot.name}": getattr(slot, key)
            for slots, _ in self._groups
            for slot in slots
            for key in _STATE
        }

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Restore the optimizer state from a result of `tensors`."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])


def split_decay(
    parameters: Iterable[tuple[str, nn.Parameter]],
) -> tuple[dict[str, nn.Parameter], dict[str, nn.Parameter]]:
    """Return the trainable parameters with weight decay and those without, each by name.

    Matrices named ``lambda_*``, lambda vectors with one row per head, have none.
    """
    groups: tuple[dict[str, nn.Parameter], dict[str, nn.Parameter]] = {}, {}
    for name, parameter in parameters:
        if parameter.requires_grad:
            is_lambda = name.rpartition(".")[2].startswith("lambda_")
            groups[is_lambda or parameter.ndim < 2][name] = parameter
    return groups
