"""How the processes of one training find each other, and how they end together.

The first of them that fails says why. The others, whom it leaves in the middle of a sum, look into
the store that torch's rendezvous has set up, where it leaves its line, and end without one of
theirs.
"""

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from difftransformer.errors import BackendError, ConfigError
from difftransformer.provenance.command_errors import is_out_of_memory
from difftransformer.training.distributed import ShardedTeam, collective_timeout
from difftransformer.training.team import Team

LEFT = os.EX_UNAVAILABLE
"""Exit status of a process that ends because of another one."""

_LOST = re.compile(r"gloo|NCCL|Connection (closed|reset|refused)|Broken pipe|[Tt]imed out|TCPStore")
_FAILURES, _SAID, _READ = (f"difftransformer/{word}" for word in ("failures", "said", "read"))
_TO_SPEAK, _TO_BE_ENDED, _PAUSE = 5.0, 10.0, 0.3

T = TypeVar("T")


class Left(SystemExit):
    """Another process of this training failed, and has said why for all of them."""

    def __init__(self, said: str) -> None:
        super().__init__(LEFT)
        self.said = said

    def __str__(self) -> str:
        return self.said


def started_world() -> int:
    """Return of how many processes this one is, as `torchrun` has started it; 1 without."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_rank0() -> bool:
    """Whether this process speaks for all: it logs, tracks and publishes."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def joined(world_size: int, device: torch.device) -> Iterator[Team]:
    """Join the other processes of this training, and leave them in the end.

    Args:
        world_size: How many processes the settings ask for.
        device: Where this process computes.

    Raises:
        ConfigError: `torchrun` has started another number of them.
        BackendError: They do not find each other in time, or lose each other, or their torch
            differs.
        Left: Another one failed.
    """
    started = started_world()
    if started == world_size == 1:
        yield Team()
        return
    wrong = ConfigError(
        f"training.world_size is {world_size}, but {started} processes were started: set it to "
        f"{started}, or start without torchrun"
    )
    if started != world_size and "MASTER_ADDR" not in os.environ:
        raise wrong
    store = _met(started, lambda: next(rendezvous("env://", timeout=collective_timeout()))[0])
    with _one_voice(store):
        if started != world_size:
            raise wrong
        backends = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        rank = int(os.environ["RANK"])
        _met(
            world_size,
            lambda: dist.init_process_group(
                backends,
                store=PrefixStore("difftransformer/group", store),
                rank=rank,
                world_size=world_size,
                timeout=collective_timeout(),
            ),
        )
        try:
            team = ShardedTeam(world_size, device)
            team.require_same(f"torch {torch.__version__}")
            yield team
        finally:
            dist.destroy_process_group()


def _met(world_size: int, meet: Callable[[], T]) -> T:
    try:
        return meet()
    except (RuntimeError, ValueError) as error:
        raise BackendError(
            f"process {os.environ.get('RANK')} of {world_size} does not find the others "
            f"({_reason(error)}): look at their logs, at MASTER_ADDR and at firewalls, then start "
            "all of them again"
        ) from error


@contextmanager
def _one_voice(store: Store) -> Iterator[None]:
    """Let the first process that fails say why, and the others nothing."""
    who = f"process {os.environ.get('RANK')} of {started_world()}"
    try:
        yield
    except Exception as error:
        failure = error
        if _is_about_others(error):
            if signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:  # `listening` was asked to stop
                time.sleep(_PAUSE)  # see `_let_others_read`
                raise Left("another process has ended") from None
            _leave_with_who_spoke(store, _TO_SPEAK)
            failure = BackendError(
                f"{who} has lost the others ({_reason(error)}): look at their logs; the same call "
                "continues from the last checkpoint"
            )
        said = f"{who} failed: {' '.join(str(failure).split()) or type(failure).__name__}"
        first = True
        with suppress(RuntimeError):  # the store is gone with its host
            first = store.add(_FAILURES, 1) == 1
            if first:
                store.set(_SAID, said)
                _let_others_read(store)
        if not first:
            _leave_with_who_spoke(store, _TO_SPEAK)
            raise Left("another process failed") from None
        if threading.current_thread() is threading.main_thread():
            # Who started this process ends it when the others leave; its line comes first.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if failure is error:
            raise
        raise failure from None


def _let_others_read(store: Store) -> None:
    """Keep a store that ends with this process until the others have read in it, or are late.

    The pause is for all: gloo's threads let go of their last tensors under Python's lock, and one
    that asks for it when the interpreter has begun to end aborts the process.
    """
    time.sleep(_PAUSE)
    if is_rank0() and not dist.is_torchelastic_launched():
        deadline = time.monotonic() + _TO_SPEAK
        while store.add(_READ, 0) < started_world() - 1 and time.monotonic() < deadline:
            time.sleep(_PAUSE)


def _leave_with_who_spoke(store: Store, seconds: float) -> None:
    """Wait until another process has said why it failed, then for the end.

    Returns if none has. `torchrun` takes the status of who ended first, and then ends the others.

    Raises:
        Left: One has, or this process was told to end.
    """
    said = "another process has ended"
    try:
        deadline = time.monotonic() + seconds
        while not store.check([_SAID]):
            if time.monotonic() > deadline:
                return
            time.sleep(_PAUSE)
        said = store.get(_SAID).decode()
        store.add(_READ, 1)
        # Without torchrun a pause as of who speaks, see `_let_others_read`.
        time.sleep(_TO_BE_ENDED if dist.is_torchelastic_launched() else _PAUSE)
    except RuntimeError:  # the store is gone with its host
        return
    except SystemExit:  # SIGTERM
        pass
    raise Left(said)


def _is_about_others(error: Exception) -> bool:
    """Whether an error is what another process's end looks like from here."""
    if is_out_of_memory(error) or not isinstance(error, RuntimeError):
        return False
    return isinstance(error, dist.DistError) or _LOST.search(str(error)) is not None


def _reason(error: Exception) -> str:
    """Give the first sentence, without the place in torch's source."""
    said = re.sub(r"^\[[^]]*\] *", "", " ".join(str(error).split()))
    return said.partition(". ")[0][:200]
