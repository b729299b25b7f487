"""What a training asks of the processes that it is made of, answered for one.

Shapes: B = sequences, T = positions.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from difftransformer.models.language_model import LanguageModel

T = TypeVar("T")
M = TypeVar("M", bound=LanguageModel)
Fill = Callable[[M, str, nn.Module], None]
"""Gives one module of a model, by name, the values of its own parameters."""


class Team:
    """A training of one process; `ShardedTeam` is one of several."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_rank0(self) -> bool:
        """Whether this process speaks for all."""
        return self.rank == 0

    @torch.no_grad()
    def shared(
        self, empty: Callable[[], M], fill: Fill[M], device: torch.device, precision: str
    ) -> M:
        """Return a model of which each process has its share; an optimizer is made after it.

        Args:
            empty: Makes one of its class and sizes; values do not matter.
            fill: Gives one module of it, by name, the values of its own parameters, which are whole
                and on the CPU; module by module, so that no process ever has all of them.
            device: Where this process computes.
            precision: "fp32", or "bf16" for products in it.
        """
        model = empty()
        for name, module in model.named_modules():
            fill(model, name, module)
        return model.to(device)

    def loss(
        self, model: LanguageModel, loss: Callable[[Tensor], Tensor]
    ) -> Callable[[Tensor], Tensor]:
        """Return ``loss`` of a micro-batch [B, T + 1] as this process can compute it.

        Args:
            model: What `shared` gave.
            loss: Of the whole model, on this process's share of the batch.
        """
        return loss

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Let the model be read outside of its loss, as validation does."""
        yield

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of a number over the processes."""
        return value

    def full(self, tensor: Tensor) -> Tensor:
        """Return the whole of what may be a share."""
        return tensor

    def plain(self, model: LanguageModel) -> LanguageModel:
        """Return the model as it is now, without shards, to the process that leads; all call it."""
        return model

    def share(self, whole: Tensor, like: Tensor) -> Tensor:
        """Return of a tensor, whole or shared, what this process has in ``like``."""
        return whole

    def agreed(self, stop: str | None) -> str | None:
        """Return the signal that any of the processes was asked to stop by."""
        return stop

    def from_leader(self, value: Any) -> Any:
        """Return what the leading process gives."""
        return value

    def all_of(self, value: Any) -> list[Any]:
        """Return what each process gives."""
        return [value]

    def apart(self) -> "Team":
        """Return the same processes for a thread, whose talk does not mix with that of others."""
        return self

    def together(self, act: Callable[[], T]) -> T:
        """Return what an act of this process gives; what is refused to one is refused to all.

        Raises:
            OSError: The file system refused, here or to another process; or what ``act`` raises.
        """
        return act()

    def leading(self, act: Callable[[], T]) -> T | None:
        """Return what an act of the leading process gives, which the others wait for without end.

        The act asks nothing of the others, who get None. What is refused to it is refused to all.
        """
        return act()

    def write(self, tensors: dict[str, Tensor], folder: Path) -> list[str]:
        """Write this process's shards of a checkpoint; return the names of its files.

        Raises:
            OSError: The file system refused, here or to another process.
        """
        raise NotImplementedError("a team of one writes one file")
