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
"""Function that sets the parameters of one module of a model, given the module's name."""


class ProcessGroup:
    """The process group of a training in one process; `FSDPProcessGroup` is for several."""

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
            make_model: Function that returns a model, whose values are overwritten.
            init_module: Function that initializes a module with its full parameters on the CPU. No
                process ever holds all parameters.
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
        """Return ``loss`` as a function of a micro-batch [B, T + 1] that gathers its parameters.

        Args:
            model: The model that `shard_model` returned.
            loss: Function that returns the loss of the full model on this process's micro-batch.
        """
        return loss

    @contextmanager
    def unsharded(self) -> Iterator[None]:
        """Gather the embedding and the output matrix within the context, for reading.

        Validation reads them outside the wrapped loss.
        """
        yield

    def all_reduce_mean(self, value: Tensor) -> Tensor:
        """Return the mean over the processes of a scalar that each process passes."""
        return value

    def full_tensor(self, tensor: Tensor) -> Tensor:
        """Return the full tensor of a sharded one; unsharded tensors are returned unchanged."""
        return tensor

    def gather_full_model(self, model: LanguageModel) -> LanguageModel:
        """Return an unsharded copy of the model on rank 0; all processes must call it."""
        return model

    def shard_tensor(self, full: Tensor, like: Tensor) -> Tensor:
        """Return this process's shard of a full tensor, sharded in the same way as ``like``."""
        return full

    def any_rank(self, stop: str | None) -> str | None:
        """Return the stop signal that any process has received, None if none has."""
        return stop

    def broadcast_object(self, value: Any) -> Any:
        """Return the object that rank 0 passes, in all processes."""
        return value

    def all_gather_object(self, value: Any) -> list[Any]:
        """Return the objects that all processes pass, ordered by rank."""
        return [value]

    def new_group(self) -> "ProcessGroup":
        """Return a group of the same processes whose collectives may run in another thread."""
        return self

    def run_on_all_or_raise(self, act: Callable[[], T]) -> T:
        """Run ``act`` in each process and return its own result; raise in all if any fails.

        Raises:
            OSError: The file system refused, here or to another process; or what ``act`` raises.
        """
        return act()

    def run_on_rank0(self, act: Callable[[], T]) -> T | None:
        """Run ``act`` on rank 0 and return its result there, None elsewhere.

        ``act`` must not use collectives. The other processes wait without a timeout. An error
        on rank 0 is raised in all.
        """
        return act()

    def save_shards(self, tensors: dict[str, Tensor], folder: Path) -> list[str]:
        """Write this process's shards of a checkpoint into ``folder``; return its file names.

        Raises:
            OSError: The file system refused, here or to another process.
        """
        raise NotImplementedError("a group of one process writes one file")
