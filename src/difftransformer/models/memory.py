"""Memory that a forward pass takes, and leaves for the backward one, found by running a little.

Every variant and backend makes and saves other tensors; watching what is made, and asking autograd
what it keeps, is right for all of them, also for those that are not written yet.

Shapes: B = sequences, T = positions, S = positions with those of the cache.
"""

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from difftransformer.models.cache import PrefixCache
from difftransformer.models.config import ModelConfig
from difftransformer.models.device import autocast
from difftransformer.models.language_model import LanguageModel
from difftransformer.models.recomputation import is_kept
from difftransformer.models.transformer import Transformer

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

_PROBE = 128
"""Positions of the shortest probe; three lengths fix the constant, linear and quadratic part."""
_DIRECT = 1 << 19
"""Up to this many positions times d_model, T itself is run."""
_LONG = 768
"""The longest without gradients: the maps of an eager backend must have outgrown all the rest."""
_VOCABULARY = 64


def saved_bytes_per_layer(
    config: ModelConfig,
    backend: str,
    seq_len: int,
    device: torch.device,
    precision: str = "fp32",
    *,
    masked: bool = False,
) -> float:
    """Return the bytes that a layer keeps for the backward pass of one sequence of T positions.

    Args:
        config: The model.
        backend: Attention backend.
        seq_len: T.
        device: Where it is tried.
        precision: "fp32", or "bf16" for autocast.
        masked: Whether a mask keeps documents apart.
    """

    def per_layer(length: int) -> float:
        return _kept_by_a_layer(config, backend, length, device, precision, masked=masked)

    if seq_len <= 3 * _PROBE or seq_len * config.d_model <= _DIRECT:
        return per_layer(seq_len)
    one, two, three = (per_layer(_PROBE * times) for times in (1, 2, 3))
    x = seq_len / _PROBE
    # Lagrange's parabola through the lengths 1, 2 and 3.
    return one * (x - 2) * (x - 3) / 2 - two * (x - 1) * (x - 3) + three * (x - 1) * (x - 2) / 2


def imagined_bytes_per_layer(
    config: ModelConfig, seq_len: int, precision: str, *, masked: bool = False
) -> float:
    """As `saved_bytes_per_layer`, by tensors that have a shape alone: of any size, on any machine.

    They go through the CPU's fused attention, which keeps what that of a GPU keeps.
    """
    cpu = torch.device("cpu")
    with _shapes_alone():
        return _kept_by_a_layer(config, "sdpa", seq_len, cpu, precision, masked=masked)


def selected_bytes_per_layer(config: ModelConfig, seq_len: int, precision: str) -> float:
    """Return the bytes that a layer keeps beside its input where the rest is computed again.

    See `recomputation`; for one sequence of T positions, with which they grow, by tensors that have
    a shape alone.
    """
    cpu, length = torch.device("cpu"), min(seq_len, _PROBE)

    def kept(layers: int) -> int:
        model = _small(config, "sdpa", layers, cpu)
        found = _Selected()
        with autocast(cpu, precision), found:
            model.hidden_states(torch.zeros((1, length), dtype=torch.long))
        return found.size

    with _shapes_alone():
        return (kept(2) - kept(1)) * seq_len / length


def _shapes_alone() -> "FakeTensorMode":
    """Return a mode in which CPU tensors have a shape but no data."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    class OfTheCpu(FakeTensorMode):  # type: ignore[no-untyped-call]
        # Otherwise a CUDA build of torch on a machine without GPUs simulates eight of them:
        # autograd then starts a thread for each, and no forked process can train.
        avoid_device_init = False

    return OfTheCpu()


def _kept_by_a_layer(
    config: ModelConfig,
    backend: str,
    length: int,
    device: torch.device,
    precision: str,
    *,
    masked: bool,
) -> int:
    def kept(layers: int, sequences: int) -> int:
        with autocast(device, precision):
            model = _small(config, backend, layers, device)
            tokens = torch.zeros((sequences, length), dtype=torch.long, device=device)
            return saved_bytes(model, tokens, **({"segment_ids": tokens} if masked else {}))

    one = kept(2, 1) - kept(1, 1)
    if precision == "fp32":
        return one
    # Autocast keeps a copy of the weights beside, one for any number of sequences.
    return kept(2, 2) - kept(1, 2) - one


def working_bytes(
    config: ModelConfig,
    backend: str,
    new: int,
    total: int,
    device: torch.device,
    precision: str = "fp32",
) -> float:
    """Return the most bytes at work at a time while a model without gradients reads a sequence.

    Weights and the cache are not among them; one layer is as much as all.

    Args:
        config: The model.
        backend: Attention backend; an eager one writes out all its maps.
        new: T.
        total: S, T where nothing is cached.
        device: Where it is tried.
        precision: "fp32", or "bf16" for autocast.
    """
    model = _small(config, backend, 1, device)
    longest = _LONG * (total / new) ** 0.5
    with autocast(device, precision):
        if total <= longest or new * max(total, config.d_model) <= _DIRECT:
            return _at_work(model, new, total)
        if device.type == "cuda":  # the library of products makes room for itself at its first call
            _at_work(model, 1, 1)
        sizes = np.array([longest * third / total for third in (1 / 3, 2 / 3, 1)])
        found = [_at_work(model, round(size * new), round(size * total)) for size in sizes]
    # Behind what costs the same at any length: a part that is linear, and one that is quadratic.
    return float(np.linalg.solve(np.vander(sizes, 3), np.array(found, float)).sum())


@torch.no_grad()
def _at_work(model: Transformer, new: int, total: int) -> int:
    """Most bytes of tensors alive at a time in the forward pass of one sequence."""
    tokens = torch.zeros(1, total, dtype=torch.long, device=model.embedding.weight.device)
    cache, living = PrefixCache(total) if total > new else None, _Living()
    if cache is not None:
        model.hidden_states(tokens[:, new:], cache=cache)
    if tokens.is_cuda:  # what is compiled there cannot be watched
        return cuda_peak(lambda: model.hidden_states(tokens[:, :new], cache=cache), tokens.device)
    with living:
        model.hidden_states(tokens[:, :new], cache=cache)
    return living.peak


def cuda_peak(step: Callable[[], object], device: torch.device) -> int:
    """Bytes that a step allocates on a GPU on top of what is there before it, at their highest."""
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


class _Living(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the storages that operations make, while these live.

    Attributes:
        peak: The most so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = self._now = 0
        self._known: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and the import of what compiles takes a second."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Do the operation; storages of its inputs that are not known yet were there before."""
        given = kwargs or {}
        for tensor in _tensors((args, given)):
            self._known.add(tensor.untyped_storage()._cdata)
        out = func(*args, **given)
        for tensor in _tensors(out):
            storage = tensor.untyped_storage()
            if storage._cdata not in self._known:
                self._known.add(storage._cdata)
                self._now += storage.nbytes()
                weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())
        self.peak = max(self.peak, self._now)
        return out

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._now -= size


class _Selected(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of what the operations give that are not done again."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.size = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if is_kept(func):
            self.size += sum(tensor.nbytes for tensor in _tensors(out))
        return out


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _small(config: ModelConfig, backend: str, layers: int, device: torch.device) -> Transformer:
    """Return the model with fewer layers and hardly a vocabulary, its weights zero."""
    small = replace(config, num_layers=layers, vocab_size=_VOCABULARY)
    with device:
        model = Transformer(small, backend)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


def saved_bytes(model: LanguageModel, tokens: Tensor, **options: Any) -> int:
    """Bytes that autograd keeps of tokens [B, T] beside parameters, each storage once."""
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes()
        return tensor.detach()  # an output that a node keeps whole is never freed: it owns the node

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = model.hidden_states(tokens, **options)
    total = sum(kept.values())
    del hidden
    return total
