"""The process group of a training in several processes: FSDP2 (`fully_shard`) and its collectives.

Parameters, gradients and optimizer states are sharded over all processes, the batch is divided
among them, and all of them know every number of the history.

Shapes: B = sequences, T = positions.
"""

import errno
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from copy import copy
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from torch import Tensor, nn

from difftransformer.errors import BackendError, ConfigError, UserError
from difftransformer.models.language_model import LanguageModel
from difftransformer.training.process_group import InitModule, M, ProcessGroup, T

if TYPE_CHECKING:
    from torch.distributed.checkpoint.api import CheckpointException

COLLECTIVE_TIMEOUT = "DIFFTRANSFORMER_COLLECTIVE_TIMEOUT"
"""Environment variable: seconds that a collective waits for the other processes; 300 if unset."""

_POLL_SECONDS = 1.0


def collective_timeout() -> timedelta:
    """Return the time after which a collective gives up waiting for the other processes.

    Raises:
        ConfigError: The environment variable that sets it is not a positive number.
    """
    text = os.environ.get(COLLECTIVE_TIMEOUT, "").strip() or "300"
    if not (text.isdecimal() and int(text) > 0):
        raise ConfigError(
            f"environment variable {COLLECTIVE_TIMEOUT}: {text!r} is no number of seconds; set it "
            "to a whole number from 1, such as 600, or unset it"
        )
    return timedelta(seconds=int(text))


class FSDPProcessGroup(ProcessGroup):
    """A process group in which each process has a shard of all parameters and optimizer states."""

    def __init__(self, world_size: int, device: torch.device) -> None:
        self.rank, self.world_size = dist.get_rank(), world_size
        self._device = device
        self._mesh = dist.device_mesh.init_device_mesh(device.type, (world_size,))
        self._root: Any = None
        self._group: Any = None  # torch's default group, with gloo for objects on the CPU

    def new_group(self) -> Self:
        """Return a group of the same processes for use in another thread; all processes call it."""
        other = copy(self)
        other._group = dist.new_group(backend="gloo", timeout=collective_timeout())
        return other

    def require_same_on_all_ranks(self, version: str) -> None:
        """Check that all processes have the same version of a library, given here for this process.

        Raises:
            BackendError: The versions differ.
        """
        versions = self.all_gather_object(version)
        if len(set(versions)) > 1:
            raise BackendError(
                f"the processes differ: {', '.join(versions)} by rank: install the same everywhere"
            )

    @torch.no_grad()
    def shard_model(
        self,
        make_model: Callable[[], M],
        init_module: InitModule[M],
        device: torch.device,
        precision: str,
    ) -> M:
        """Return a model with sharded parameters; each layer is gathered while it computes."""
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        is_bf16 = precision == "bf16"
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if is_bf16 else None,
            reduce_dtype=torch.float32 if is_bf16 else None,
            cast_forward_inputs=False,
        )
        with torch.device("meta"):
            model = make_model()
        for layer in model.get_submodule("layers").children():
            # Explicit: a model that is read before its first step has layers without a root.
            fully_shard(layer, mesh=self._mesh, mp_policy=policy, reshard_after_forward=True)
        self._root, self._make_model = _LossModule(model), make_model
        fully_shard(self._root, mesh=self._mesh, mp_policy=policy, reshard_after_forward=False)
        model.to_empty(device=device)
        for name, module in model.named_modules():
            self._init_module(model, name, module, init_module)
        return model

    def _init_module(
        self, model: M, name: str, module: nn.Module, init_module: InitModule[M]
    ) -> None:
        """Initialize full parameters of one module, and copy this process's shards of them."""
        shards = dict(module.named_parameters(recurse=False))
        for key, shard in shards.items():
            module.register_parameter(key, nn.Parameter(torch.empty(shard.shape)))
        init_module(model, name, module)
        for key, shard in shards.items():
            shard.copy_(self.shard_tensor(module.get_parameter(key).detach(), shard))
            module.register_parameter(key, shard)

    def wrap_loss(
        self, model: LanguageModel, loss: Callable[[Tensor], Tensor]
    ) -> Callable[[Tensor], Tensor]:
        """Return ``loss`` as a function that first gathers the embedding and the output matrix."""
        self._root.compute = loss
        root: Callable[[Tensor], Tensor] = self._root
        return root

    @contextmanager
    def unsharded(self) -> Iterator[None]:
        """Gather the embedding and the output matrix within the context, for reading."""
        self._root.unshard()
        try:
            yield
        finally:
            self._root.reshard()

    def all_reduce_mean(self, value: Tensor) -> Tensor:
        """Return the mean over the processes of a scalar that each process passes."""
        total = value.clone()
        dist.all_reduce(total)
        return total / self.world_size

    def full_tensor(self, tensor: Tensor) -> Tensor:
        """Return the full tensor of a sharded one; unsharded tensors are returned unchanged."""
        full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        return full

    def gather_full_model(self, model: LanguageModel) -> LanguageModel:
        """Return an unsharded copy of the model on rank 0; all processes must call it."""
        # Only rank 0 allocates the full model.
        with torch.device("cpu" if self.is_rank0 else "meta"):
            full_model = self._make_model()
        with torch.no_grad():
            shards = dict(model.named_parameters())
            for name, parameter in full_model.named_parameters():
                full = self.full_tensor(shards[name])
                if self.is_rank0:
                    parameter.copy_(full)
        return full_model

    def shard_tensor(self, full: Tensor, like: Tensor) -> Tensor:
        """Return this process's shard of a full tensor, sharded in the same way as ``like``."""
        from torch.distributed.tensor import DTensor, distribute_tensor

        if not isinstance(like, DTensor) or isinstance(full, DTensor):
            return full
        # Every process has the full tensor: each takes its shard, nothing is sent.
        return distribute_tensor(
            full.to(self._device), like.device_mesh, like.placements, src_data_rank=None
        )

    def any_rank(self, stop: str | None) -> str | None:
        """Return the stop signal that any process has received, None if none has."""
        number = 0 if stop is None else int(signal.Signals[stop])
        highest = torch.tensor(number)  # on the CPU: reading it from a GPU would stall that
        dist.all_reduce(highest, dist.ReduceOp.MAX)
        return signal.Signals(int(highest)).name if highest else None

    def broadcast_object(self, value: Any) -> Any:
        """Return the object that rank 0 passes, in all processes."""
        return self.all_gather_object(value)[0]

    def all_gather_object(self, value: Any) -> list[Any]:
        """Return the objects that all processes pass, ordered by rank."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, self._group)
        return values

    def run_on_all_or_raise(self, act: Callable[[], T]) -> T:
        """Run ``act`` in each process and return its own result; raise in all if any fails."""
        failure: OSError | UserError | None = None
        try:
            result = act()
        except SafetensorError as error:
            failure = OSError(errno.EIO, str(error))
        except (OSError, UserError) as error:
            failure = error
        failures = [error for error in self.all_gather_object(failure) if error is not None]
        if failures:
            raise failure or failures[0]
        return result

    def run_on_rank0(self, act: Callable[[], T]) -> T | None:
        """Run ``act`` on rank 0 and return its result there, None elsewhere.

        The other processes poll in short collectives, so that no collective times out.
        """
        with ThreadPoolExecutor(1, "rank0") as pool:
            future = pool.submit(act) if self.is_rank0 else None
            while not self.broadcast_object(future is None or future.done()):
                if future is not None:
                    wait([future], timeout=_POLL_SECONDS)
            return self.run_on_all_or_raise(lambda: None if future is None else future.result())

    def save_shards(self, tensors: dict[str, Tensor], folder: Path) -> list[str]:
        """Write this process's shards as safetensors into ``folder``; return its file names.

        torch.distributed.checkpoint writes them.
        """
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
        try:
            with _no_dist_warning():
                save(tensors, storage_writer=writer, process_group=self._group)
        except CheckpointException as error:
            raise _cause(error) from None
        return sorted(path.name for path in folder.glob(f"shard-{self.rank + 1:05d}-*"))


def read_shards(folder: Path, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors in ``folder``, a sharded checkpoint written by any number of processes.

    Of tensors that are sharded in ``like``, only this process's shards are read.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load
    from torch.distributed.tensor import DTensor

    metadata = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    sizes: dict[str, Any] = dict(metadata)
    tensors: dict[str, Tensor] = {}
    for name, stored in sizes.items():
        if isinstance(like.get(name), DTensor):
            tensors[name] = torch.empty_like(like[name])
        else:
            tensors[name] = torch.empty(stored.size, dtype=stored.properties.dtype)
    try:
        with _no_dist_warning():
            load(tensors, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    except CheckpointException as error:
        raise _cause(error) from None
    return tensors


def _cause(error: "CheckpointException") -> BaseException:
    """Return the first error behind a CheckpointException, which is no `Exception`."""
    return next(iter(error.failures.values()))[0]


class _LossModule(nn.Module):
    """A module whose forward is the loss, so that FSDP gathers the root parameters around it."""

    compute: Callable[[Tensor], Tensor]

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Tensor) -> Tensor:
        return self.compute(batch)


@contextmanager
def _no_dist_warning() -> Iterator[None]:
    """Hide the warning that torch.distributed is not used, which is intended when reading."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
