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
    """Interface of an optimizer, which updates parameters from their gradients."""

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Parameters that the optimizer updates; their gradient norm is logged and clipped."""

    def step(self, lr: float, found_inf: Tensor | None = None) -> None:
        """Update the parameters from their gradients, and set the gradients to None.

        Args:
            lr: The learning rate.
            found_inf: float32 scalar; if 1, the gradients are not finite and nothing is updated.
        """

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimizer state by name, without copying."""

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Restore the optimizer state from a result of `tensors`; other names are ignored."""


class ParameterCounts(NamedTuple):
    """Numbers of trainable parameters and of optimizer states of a fine-tuning method.

    Attributes:
        trained: Number of trainable parameters.
        optimizer: Number of elements in the optimizer state.
    """

    trained: int
    optimizer: int


class MethodSettings(Settings):
    """Base class of the settings of a fine-tuning method.

    In each subclass, ``method`` is a Literal with the name of the method's file.
    """

    method: str = setting(meaning="File of training/methods")

    def trainable_parameters(self, model: ModelConfig) -> int:
        """Return the number of trainable parameters in a model of these sizes, without biases."""
        return count_parameters(model)

    def require_fit(self, model: ModelConfig) -> None:
        """Check the method's settings against the sizes of a model.

        Raises:
            ValueError: A setting does not fit; the message begins with its key.
        """

    def parameter_counts(self, model: ModelConfig) -> ParameterCounts:
        """Return the numbers of trained parameters and of optimizer states.

        The default is for AdamW, which has two moments per parameter.
        """
        trained = self.trainable_parameters(model)
        return ParameterCounts(trained, 2 * trained)


@dataclass(frozen=True)
class Task:
    """Inputs of a fine-tuning method besides the model and the method's settings.

    Attributes:
        training: Training settings.
        seed: Seed of the method's random numbers.
        batches: Function that returns batches of the first n sequences of the training text.
    """

    training: TrainingConfig
    seed: int
    batches: Callable[[int], Iterable[Tensor]]


class Adapter(NamedTuple):
    """A trained adapter in the form in which peft saves it.

    Attributes:
        tensors: Parameters of the adapter by name.
        settings: Content of adapter_config.json.
    """

    tensors: dict[str, Tensor]
    settings: Mapping[str, Any]


class Method:
    """Training of all parameters that require a gradient; fine-tuning methods are subclasses."""

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
        """Return additional metrics of this method for the history, by column."""
        return {}

    def extra_tensors(self) -> dict[str, Tensor]:
        """Return, by name, the frozen tensors of the model that a checkpoint needs, too."""
        return {}

    def merge(self) -> None:
        """Merge the adapter into the model, which then has only modules of its own class."""

    def adapter(self) -> Adapter | None:
        """Return the adapter, or None if the method has none; to be called before `merge`."""
        return None
