"""AdamW with weight decay on matrices only, its state as named tensors.

`torch.optim.AdamW` would do, but making one imports torch's whole compiler: 2.6 s of CPU on top of
the 2.0 s of ``import torch``, in every job. Here the same fused kernel is called through torch's
functional interface, which does not, and the state is plain tensors under the parameters' names.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from difftransformer.config.training import TrainingConfig

_MOMENTS = ("exp_avg", "exp_avg_sq")
_STEP = "adam_step"


@dataclass
class _Slot:
    """A parameter and what AdamW keeps about it."""

    name: str
    parameter: nn.Parameter
    exp_avg: Tensor
    exp_avg_sq: Tensor
    adam_step: Tensor


class AdamW:
    """Fused AdamW (Loshchilov and Hutter 2019) over the trainable parameters of a model.

    Weight decay acts on parameters of two or more dimensions (projections, embeddings). Gains,
    biases and lambda vectors are left alone: pulling them to zero would change what they
    parameterise rather than regularise it.

    Args:
        parameters: Names and parameters, each once; those without ``requires_grad`` are left out.
        config: Betas, eps and weight decay; the learning rate comes with each step.
    """

    def __init__(
        self, parameters: Iterable[tuple[str, nn.Parameter]], config: TrainingConfig
    ) -> None:
        self._config = config
        groups = zip(split_decay(parameters), (config.weight_decay, 0.0), strict=True)
        self._groups = [
            ([_empty_slot(name, p) for name, p in group.items()], decay) for group, decay in groups
        ]

    @property
    def parameters(self) -> list[nn.Parameter]:
        """What is optimised."""
        return [slot.parameter for slots, _ in self._groups for slot in slots]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """One update from the gradients that there are, which are dropped then."""
        for slots, decay in self._groups:
            self._update([slot for slot in slots if slot.parameter.grad is not None], lr, decay)
        for parameter in self.parameters:
            parameter.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """Return the state as ``{key}.{parameter name}``, the tensors themselves."""
        return {
            f"{key}.{slot.name}": getattr(slot, key)
            for slots, _ in self._groups
            for slot in slots
            for key in (*_MOMENTS, _STEP)
        }

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Copy back what `tensors` gave."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])

    def _update(self, slots: Sequence[_Slot], lr: float, decay: float) -> None:
        beta1, beta2 = self._config.betas
        adamw(
            [slot.parameter for slot in slots],
            [slot.parameter.grad for slot in slots if slot.parameter.grad is not None],
            [slot.exp_avg for slot in slots],
            [slot.exp_avg_sq for slot in slots],
            [],
            [slot.adam_step for slot in slots],
            fused=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=lr,
            weight_decay=decay,
            eps=self._config.eps,
            maximize=False,
        )


def split_decay(
    parameters: Iterable[tuple[str, nn.Parameter]],
) -> tuple[dict[str, nn.Parameter], dict[str, nn.Parameter]]:
    """Return trainable parameters with weight decay and those without, by name.

    A variant that stores lambda vectors as a matrix, one row per head, names it ``lambda_*``: that
    exempts it too.
    """
    decayed: dict[str, nn.Parameter] = {}
    free: dict[str, nn.Parameter] = {}
    for name, parameter in parameters:
        if parameter.requires_grad:
            is_lambda = name.rpartition(".")[2].startswith("lambda_")
            group = decayed if parameter.ndim >= 2 and not is_lambda else free
            group[name] = parameter
    return decayed, free


def _empty_slot(name: str, parameter: nn.Parameter) -> _Slot:
    return _Slot(
        name,
        parameter,
        torch.zeros_like(parameter, requires_grad=False),
        torch.zeros_like(parameter, requires_grad=False),
        torch.zeros((), dtype=torch.float32, device=parameter.device),
    )
