"""What a training changes of a model, and by which optimizer: full training, and the adaptations.

A file of `training.methods` makes one from a model and its settings.
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
        """What is trained: the norm of its gradient is logged and clipped."""

    def step(self, lr: float, found_inf: Tensor | None = None) -> None:
        """Update the parameters from their gradients, and drop these.

        Args:
            lr: The learning rate.
            found_inf: float32 scalar; 1: the gradients are not finite, and nothing is updated.
        """

    def tensors(self) -> dict[str, Tensor]:
        """Return the state that a checkpoint holds beside the model, the tensors themselves."""

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Copy back what `tensors` gave; others among them are not its own."""


class Planned(NamedTuple):
    """What adapting a model will take, from its sizes alone.

    Attributes:
        trained: Numbers that train.
        kept: Numbers that the optimizer keeps of them.
    """

    trained: int
    kept: int


class MethodSettings(Settings):
    """Settings of one way to adapt a model: the base of every method's own ``Settings``.

    ``method`` is a Literal with the name of its file.
    """

    method: str = setting(meaning="File of training/methods")

    def trains(self, model: ModelConfig) -> int:
        """How many numbers train in a model of these sizes, biases left out."""
        return count_parameters(model)

    def require_fit(self, model: ModelConfig) -> None:
        """Refuse settings that a model of these sizes cannot have.

        Raises:
            ValueError: It begins with the key of the setting.
        """

    def planned(self, model: ModelConfig) -> Planned:
        """What it takes: AdamW keeps two moments of each number."""
        trained = self.trains(model)
        return Planned(trained, 2 * trained)


@dataclass(frozen=True)
class Task:
    """What a method is to adapt a model for.

    Attributes:
        training: Budget, optimizer, precision.
        seed: Seed of what the method draws.
        batches: Gives that many sequences of the training text, fixed by the run alone.
    """

    training: TrainingConfig
    seed: int
    batches: Callable[[int], Iterable[Tensor]]


class Adapter(NamedTuple):
    """What a method has beside the model: how to go on with it, or to undo it.

    Attributes:
        tensors: Its parts by name.
        settings: What peft keeps in adapter_config.json.
    """

    tensors: dict[str, Tensor]
    settings: Mapping[str, Any]


class Method:
    """A training of all parameters that require a gradient; adaptations are subclasses.

    Args:
        optimizer: Of these parameters.
    """

    extra_parameters: int = 0
    """Parameters beside those of the model, gone when it is folded."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def trained_parameters(self) -> int:
        """How many numbers train."""
        return sum(parameter.numel() for parameter in self.optimizer.parameters)

    def step(self, lr: float, found_inf: Tensor | None = None) -> None:
        """Update the parameters from their gradients; arguments as for `Optimizer.step`."""
        self.optimizer.step(lr, found_inf)

    def readings(self) -> dict[str, float]:
        """Columns of the history that are the method's own, as they are now."""
        return {}

    def residuals(self) -> dict[str, Tensor]:
        """What a checkpoint must hold of the model though it does not train."""
        return {}

    def fold(self) -> None:
        """Put what was learned into the model, so that it is a plain one of its class."""

    def adapter(self) -> Adapter | None:
        """What there is beside the model, before it is folded; None for nothing."""
        return None
