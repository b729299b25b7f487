"""The process group of a training; this is the single-process version, see `distributed`.

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
InitModule = Callable[[M, str, nn.Module], None]
"""Sets the parameters of one module of a model, given its name."""


class ProcessGroup:
    """A group of one process; `FSDPProcessGroup` has several."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_rank0(self) -> bool:
        """Whether this process logs, tracks and publishes for the group."""
        return self.rank == 0

    @torch.no_grad()
    def shard_model(
        self,
        make_model: Callable[[], M],
        init_module: InitModule[M],
        device: torch.device,
        precision: str,
    ) -> M:
        """Return a model whose parameters are sharded over the processes.

        Create the optimizer afterwards: sharding replaces the parameters.

        Args:
            make_model: Returns a model; its values are overwritten.
            init_module: Called for each module, with its full parameters on the CPU. No process
                ever holds all parameters.
            device: Device of this process.
            precision: "fp32", or "bf16" for mixed precision.
        """
        model = make_model()
        for name, module in model.named_modules():
            init_module(model, name, module)
        return model.to(device)

    def wrap_loss(
        self, model: LanguageModel, loss: Callable[[Tensor], Tensor]
    ) -> Callable[[Tensor], Tensor]:
        """Return ``loss`` of a micro-batch [B, T + 1], which gathers the parameters it needs.

        Args:
            model: The model that `shard_model` returned.
            loss: Loss of the full model on this process's part of the batch.
        """
        return loss

    @contextmanager
    def unsharded(self) -> Iterator[None]:
        """Gather embedding and output matrix for reading outside the loss, as in validation."""
        yield

    def all_reduce_mean(self, value: Tensor) -> Tensor:
        """Return the mean of a scalar over the processes."""
        return value

    def full_tensor(self, tensor: Tensor) -> Tensor:
        """Return the full tensor of a sharded one; others as they are."""
        return tensor

    def gather_full_model(self, model: LanguageModel) -> LanguageModel:
        """Return an unsharded copy of the model on rank 0; all processes call it."""
        return model

    def shard_tensor(self, full: Tensor, like: Tensor) -> Tensor:
        """Return this process's shard of a full tensor, sharded as ``like``."""
        return full

    def any_rank(self, stop: str | None) -> str | None:
        """Return the stop signal that any process received, None if none did."""
        return stop

    def broadcast_object(self, value: Any) -> Any:
        """Return the value of rank 0."""
        return value

    def all_gather_object(self, value: Any) -> list[Any]:
        """Return the values of all processes, by rank."""
        return [value]

    def new_group(self) -> "ProcessGroup":
        """Return a group of the same processes whose collectives may run in another thread."""
        return self

    def run_on_all_or_raise(self, act: Callable[[], T]) -> T:
        """Return what ``act`` returns in this process; raise in all if it fails in any.

        Raises:
            OSError: The file system refused, here or to another process; or what ``act`` raises.
        """
        return act()

    def run_on_rank0(self, act: Callable[[], T]) -> T | None:
        """Run ``act``, which uses no collectives, on rank 0 alone; None elsewhere.

        The others wait without a timeout. An error is raised in all.
        """
        return act()

    def save_shards(self, tensors: dict[str, Tensor], folder: Path) -> list[str]:
        """Write this process's shards of a checkpoint; return the names of its files.

        Raises:
            OSError: The file system refused, here or to another process.
        """
        raise NotImplementedError("a group of one process writes one file")
