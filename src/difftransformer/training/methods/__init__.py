"""What of a model is trained, and by which optimiser: a choice by name, ``training.method``.

Adding a method: write ``training/methods/<name>.py`` with a function ``prepare`` that takes the
model and its `TrainingConfig` and gives a `Method`; nothing else names it. It may freeze parameters
of the model, or add some. Lazy: only the file of the selected method is imported, and is part of a
run's fingerprint.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Protocol

from difftransformer.config.validation import lookup

if TYPE_CHECKING:
    from torch import Tensor, nn

    from difftransformer.config.training import TrainingConfig
    from difftransformer.models.transformer import Transformer


class Method(Protocol):
    """The parameters that train, and their optimiser."""

    @property
    def parameters(self) -> list[nn.Parameter]:
        """What is trained: the norm of its gradient is logged and clipped."""

    def step(self, lr: float) -> None:
        """One update from the gradients that there are, which are dropped then."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the state that a checkpoint holds beside the model, the tensors themselves."""

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Copy back what `tensors` gave; others among them are not its own."""


def method_module(name: str, where: str = "training.method") -> str:
    """Module of a method, without importing it.

    Raises:
        ConfigError: no method of that name.
    """
    known = {found.name: f"{__name__}.{found.name}" for found in iter_modules(__path__)}
    module: str = lookup(known, name, "method", where)
    return module


def prepare(model: Transformer, config: TrainingConfig) -> Method:
    """Make a model ready for the method that its settings name.

    Raises:
        ConfigError: no method of that name.
    """
    made: Method = import_module(method_module(config.method)).prepare(model, config)
    return made
