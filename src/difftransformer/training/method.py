"""Training methods: the trainable parameters of a model and their optimizer.

Each file of `training.methods` defines one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from difftransformer.config.base import Settings, setting
from difftransformer.config.training import TrainingConfig
from difftransformer.models.config import ModelConfig
from difftransformer.models.sizes import count_parameters


class Optimizer(Protocol):
    """Updates parameters from their gradients."""

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The trained parameters, whose gradient norm is logged and clipped."""

    def step(self, lr: float, found_inf: Tensor | None = None) -> None:
        """Update the parameters from their gradients, and set these to None.

        Args:
            lr: The learning rate.
            found_inf: float32 scalar; if 1, the gradients are not finite and nothing is updated.
        """

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimizer state by name, without copying."""

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from `tensors`; other names are ignored."""


class ParameterCounts(NamedTuple):
    """Numbers of parameters and optimizer states of an adaptation.

    Attributes:
        trained: Trainable parameters.
        optimizer: Numbers in the optimizer state.
    """

    trained: int
    optimizer: int


class MethodSettings(Settings):
    """Base class of the ``Settings`` of a method; ``method`` is a Literal with its file's name."""

    method: str = setting(meaning="File of training/methods")

    def trainable_parameters(self, model: ModelConfig) -> int:
        """Return the number of trainable parameters for a model of these sizes, without biases."""
        return count_parameters(model)

    def require_fit(self, model: ModelConfig) -> None:
        """Check the settings against the sizes of a model.

        Raises:
            ValueError: They do not fit; the message begins with the key of the setting.
        """

    def parameter_counts(self, model: ModelConfig) -> ParameterCounts:
        """Return the sizes for AdamW, which has two moments per parameter."""
        trained = self.trainable_parameters(model)
        return ParameterCounts(trained, 2 * trained)


@dataclass(frozen=True)
class Task:
    """Inputs of a method besides the model.

    Attributes:
        training: Training settings.
        seed: Seed of the method's random numbers.
        batches: Returns batches of the given number of sequences, the first of the training text.
    """

    training: TrainingConfig
    seed: int
    batches: Callable[[int], Iterable[Tensor]]


class Adapter(NamedTuple):
    """An adapter as peft saves it.

    Attributes:
        tensors: Its parameters by name.
        settings: Content of adapter_config.json.
    """

    tensors: dict[str, Tensor]
    settings: Mapping[str, Any]


class Method:
    """Full training of all parameters that require a gradient; adaptations are subclasses."""

    extra_parameters: int = 0
    """Parameters besides those of the model, which `merge` removes."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def trained_parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(parameter.numel() for parameter in self.optimizer.parameters)

    def step(self, lr: float, found_inf: Tensor | None = None) -> None:
        """Update the parameters from their gradients; arguments as for `Optimizer.step`."""
        self.optimizer.step(lr, found_inf)

    def extra_metrics(self) -> dict[str, float]:
        """Return the history columns of this method."""
        return {}

    def extra_tensors(self) -> dict[str, Tensor]:
        """Return tensors of the model that a checkpoint needs although they are frozen."""
        return {}

    def merge(self) -> None:
        """Merge the adapter into the model, which is then a plain one of its class."""

    def adapter(self) -> Adapter | None:
        """Return the adapter, before `merge`; None without one."""
        return None
