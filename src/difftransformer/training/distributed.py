"""What the processes that train one model together do: the one place that knows of ranks.

Parameters, gradients and optimizer states are sharded over all of them (FSDP2, `fully_shard`), the
batch is divided among them, and all of them know every number of the history. A training of one
process asks the same things of a `Team` of one, which does nothing.

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
from difftransformer.training.team import Fill, M, T, Team

if TYPE_CHECKING:
    from torch.distributed.checkpoint.api import CheckpointException

COLLECTIVE_TIMEOUT = "DIFFTRANSFORMER_COLLECTIVE_TIMEOUT"
"""Seconds that a process waits for the others before it gives them up; 300 where it is not set."""

_SECONDS_BETWEEN_MEETINGS = 1.0


def collective_timeout() -> timedelta:
    """Return how long a process waits for the others.

    Raises:
        ConfigError: The environment variable is no positive number.
    """
    text = os.environ.get(COLLECTIVE_TIMEOUT, "").strip() or "300"
    if not (text.isdecimal() and int(text) > 0):
        raise ConfigError(
            f"environment variable {COLLECTIVE_TIMEOUT}: {text!r} is no number of seconds; set it "
            "to a whole number from 1, such as 600, or unset it"
        )
    return timedelta(seconds=int(text))


class ShardedTeam(Team):
    """Several processes, each with a share of everything."""

    def __init__(self, world_size: int, device: torch.device) -> None:
        self.rank, self.world_size = dist.get_rank(), world_size
        self._device = device
        self._mesh = dist.device_mesh.init_device_mesh(device.type, (world_size,))
        self._root: Any = None
        self._group: Any = None  # of all; on the CPU, where a GPU need not wait for it

    def apart(self) -> Self:
        """See `Team.apart`; all processes call it."""
        other = copy(self)
        other._group = dist.new_group(backend="gloo", timeout=collective_timeout())
        return other

    def require_same(self, what: str) -> None:
        """Check that all processes say the same of themselves.

        Raises:
            BackendError: They do not.
        """
        said = self.all_of(what)
        if len(set(said)) > 1:
            raise BackendError(
                f"the processes differ: {', '.join(said)} by rank: install the same everywhere"
            )

    @torch.no_grad()
    def shared(
        self, empty: Callable[[], M], fill: Fill[M], device: torch.device, precision: str
    ) -> M:
        """See `Team.shared`; whole layers are gathered, one after the other, when they compute."""
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        low = precision == "bf16"
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if low else None,
            reduce_dtype=torch.float32 if low else None,
            cast_forward_inputs=False,
        )
        with torch.device("meta"):
            model = empty()
        for layer in model.get_submodule("layers").children():
            # Said, for a model that is read before it has trained has layers that know of no root.
            fully_shard(layer, mesh=self._mesh, mp_policy=policy, reshard_after_forward=True)
        self._root, self._empty = _Loss(model), empty
        fully_shard(self._root, mesh=self._mesh, mp_policy=policy, reshard_after_forward=False)
        model.to_empty(device=device)
        for name, module in model.named_modules():
            self._fill(model, name, module, fill)
        return model

    def _fill(self, model: M, name: str, module: nn.Module, fill: Fill[M]) -> None:
        """Let a module have all of its own parameters while they are filled."""
        shares = dict(module.named_parameters(recurse=False))
        for own, share in shares.items():
            module.register_parameter(own, nn.Parameter(torch.empty(share.shape)))
        fill(model, name, module)
        for own, share in shares.items():
            share.copy_(self.share(module.get_parameter(own).detach(), share))
            module.register_parameter(own, share)

    def loss(
        self, model: LanguageModel, loss: Callable[[Tensor], Tensor]
    ) -> Callable[[Tensor], Tensor]:
        """See `Team.loss`: within the root's forward, where embedding and output are gathered."""
        self._root.compute = loss
        root: Callable[[Tensor], Tensor] = self._root
        return root

    @contextmanager
    def whole(self) -> Iterator[None]:
        """See `Team.whole`."""
        self._root.unshard()
        try:
            yield
        finally:
            self._root.reshard()

    def mean(self, value: Tensor) -> Tensor:
        """See `Team.mean`."""
        total = value.clone()
        dist.all_reduce(total)
        return total / self.world_size

    def full(self, tensor: Tensor) -> Tensor:
        """See `Team.full`."""
        whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        return whole

    def plain(self, model: LanguageModel) -> LanguageModel:
        """See `Team.plain`."""
        # Only who speaks for all has it whole.
        with torch.device("cpu" if self.is_rank0 else "meta"):
            found = self._empty()
        with torch.no_grad():
            shares = dict(model.named_parameters())
            for name, parameter in found.named_parameters():
                whole = self.full(shares[name])
                if self.is_rank0:
                    parameter.copy_(whole)
        return found

    def share(self, whole: Tensor, like: Tensor) -> Tensor:
        """See `Team.share`."""
        from torch.distributed.tensor import DTensor, distribute_tensor

        if not isinstance(like, DTensor) or isinstance(whole, DTensor):
            return whole
        # Every process has the whole: each takes its part, nothing is sent.
        return distribute_tensor(
            whole.to(self._device), like.device_mesh, like.placements, src_data_rank=None
        )

    def agreed(self, stop: str | None) -> str | None:
        """See `Team.agreed`."""
        number = 0 if stop is None else int(signal.Signals[stop])
        highest = torch.tensor(number)  # on the CPU: reading it from a GPU would stall that
        dist.all_reduce(highest, dist.ReduceOp.MAX)
        found = int(highest)
        return signal.Signals(found).name if found else None

    def from_leader(self, value: Any) -> Any:
        """See `Team.from_leader`."""
        return self.all_of(value)[0]

    def all_of(self, value: Any) -> list[Any]:
        """See `Team.all_of`."""
        found: list[Any] = [None] * self.world_size
        dist.all_gather_object(found, value, self._group)
        return found

    def together(self, act: Callable[[], T]) -> T:
        """See `Team.together`."""
        failure: OSError | UserError | None = None
        try:
            found = act()
        except SafetensorError as error:
            failure = OSError(errno.EIO, str(error))
        except (OSError, UserError) as error:
            failure = error
        failures = [one for one in self.all_of(failure) if one is not None]
        if failures:
            raise failure or failures[0]
        return found

    def leading(self, act: Callable[[], T]) -> T | None:
        """See `Team.leading`: in a thread, while all meet often enough to lose no patience."""
        with ThreadPoolExecutor(1, "leading") as pool:
            acting = pool.submit(act) if self.is_rank0 else None
            while not self.from_leader(acting is None or acting.done()):
                if acting is not None:
                    wait([acting], timeout=_SECONDS_BETWEEN_MEETINGS)
            return self.together(lambda: None if acting is None else acting.result())

    def write(self, tensors: dict[str, Tensor], folder: Path) -> list[str]:
        """See `Team.write`: safetensors, by torch.distributed.checkpoint."""
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
        try:
            with _quiet():
                save(tensors, storage_writer=writer, process_group=self._group)
        except CheckpointException as error:
            raise _cause(error) from None
        return sorted(path.name for path in folder.glob(f"shard-{self.rank + 1:05d}-*"))


def read_shards(folder: Path, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a sharded checkpoint, however many processes wrote it.

    Of those that are shared in ``like`` only this process's part is read.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load
    from torch.distributed.tensor import DTensor

    metadata = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    sizes: dict[str, Any] = dict(metadata)
    tensors: dict[str, Tensor] = {}
    for name, one in sizes.items():
        if isinstance(like.get(name), DTensor):
            tensors[name] = torch.empty_like(like[name])
        else:
            tensors[name] = torch.empty(one.size, dtype=one.properties.dtype)
    try:
        with _quiet():
            load(tensors, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    except CheckpointException as error:
        raise _cause(error) from None
    return tensors


def _cause(error: "CheckpointException") -> BaseException:
    """What one process met with and all are told, in what is no `Exception`."""
    return next(iter(error.failures.values()))[0]


class _Loss(nn.Module):
    """The model with its loss as its forward, while which all root parameters are gathered."""

    compute: Callable[[Tensor], Tensor]

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Tensor) -> Tensor:
        return self.compute(batch)


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out the warning that one process reads alone, which is what is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
