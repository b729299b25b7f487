"""Joining the process group of a training, and leaving it together when a process fails.

The first process that fails reports why. The others, which then fail in a collective, read that
report from the store of torch's rendezvous and exit without an error line of their own.
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
from difftransformer.training.distributed import FSDPProcessGroup, collective_timeout
from difftransformer.training.process_group import ProcessGroup

PEER_FAILED = os.EX_UNAVAILABLE
"""Exit status of a process that ends because another one failed."""

_LOST = re.compile(r"gloo|NCCL|Connection (closed|reset|refused)|Broken pipe|[Tt]imed out|TCPStore")
_FAILURES, _REPORT, _READERS = (
    f"difftransformer/{key}" for key in ("failures", "report", "readers")
)
_REPORT_SECONDS, _SHUTDOWN_SECONDS, _POLL_SECONDS = 5.0, 10.0, 0.3

T = TypeVar("T")


class PeerFailure(SystemExit):
    """Error in this process because another process of the training failed and reported why."""

    def __init__(self, report: str) -> None:
        super().__init__(PEER_FAILED)
        self.report = report

    def __str__(self) -> str:
        return self.report


def launched_world_size() -> int:
    """Return the number of processes that `torchrun` started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_rank0() -> bool:
    """Return whether this process has rank 0, which logs, tracks and publishes for its group."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def init_process_group(world_size: int, device: torch.device) -> Iterator[ProcessGroup]:
    """Join the other processes of this training and yield their process group.

    Args:
        world_size: Number of processes in the settings.
        device: Device of this process.

    Raises:
        ConfigError: `torchrun` has started another number of processes.
        BackendError: The processes do not find each other in time, lose each other, or have
            different versions of torch.
        PeerFailure: Another process failed.
    """
    started = launched_world_size()
    if started == world_size == 1:
        yield ProcessGroup()
        return
    mismatch = ConfigError(
        f"training.world_size is {world_size}, but {started} processes were started: set it to "
        f"{started}, or start without torchrun"
    )
    if started != world_size and "MASTER_ADDR" not in os.environ:
        raise mismatch
    timeout = collective_timeout()
    store = _connect(started, lambda: next(rendezvous("env://", timeout=timeout))[0])
    with _report_first_failure(store):
        if started != world_size:
            raise mismatch
        _connect(
            world_size,
            lambda: dist.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                store=PrefixStore("difftransformer/group", store),
                rank=int(os.environ["RANK"]),
                world_size=world_size,
                timeout=timeout,
            ),
        )
        try:
            group = FSDPProcessGroup(world_size, device)
            group.require_same_on_all_ranks(f"torch {torch.__version__}")
            yield group
        finally:
            dist.destroy_process_group()


def _connect(world_size: int, join: Callable[[], T]) -> T:
    try:
        return join()
    except (RuntimeError, ValueError) as error:
        raise BackendError(
            f"process {os.environ.get('RANK')} of {world_size} does not find the others "
            f"({_reason(error)}): look at their logs, at MASTER_ADDR and at firewalls, then start "
            "all of them again"
        ) from error


@contextmanager
def _report_first_failure(store: Store) -> Iterator[None]:
    """Let the first process that fails report its error, and the others exit silently."""
    process = f"process {os.environ.get('RANK')} of {launched_world_size()}"
    try:
        yield
    except Exception as error:
        failure = error
        if _is_peer_failure(error):
            if signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:  # `catch_stop_signals` got one
                time.sleep(_POLL_SECONDS)  # see `_wait_for_readers`
                raise PeerFailure("another process has ended") from None
            _exit_after_peer_report(store)
            failure = BackendError(
                f"{process} has lost the others ({_reason(error)}): look at their logs; the same "
                "call continues from the last checkpoint"
            )
        message = " ".join(str(failure).split()) or type(failure).__name__
        is_first = True
        with suppress(RuntimeError):  # the store is gone with its host
            is_first = store.add(_FAILURES, 1) == 1
            if is_first:
                store.set(_REPORT, f"{process} failed: {message}")
                _wait_for_readers(store)
        if not is_first:
            _exit_after_peer_report(store)
            raise PeerFailure("another process failed") from None
        if threading.current_thread() is threading.main_thread():
            # The launcher sends SIGTERM when the others exit; this error is printed first.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if failure is error:
            raise
        raise failure from None


def _wait_for_readers(store: Store) -> None:
    """Keep a store that ends with this process until the others have read it, or are late.

    The first pause is needed in any case: gloo's threads release their last tensors under Python's
    lock, and a thread that requests it while the interpreter shuts down aborts the process.
    """
    time.sleep(_POLL_SECONDS)
    if is_rank0() and not dist.is_torchelastic_launched():
        deadline = time.monotonic() + _REPORT_SECONDS
        while store.add(_READERS, 0) < launched_world_size() - 1 and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def _exit_after_peer_report(store: Store) -> None:
    """Wait until another process has reported its failure, then exit; return if none does.

    `torchrun` takes the status of the first process that ends, and then ends the others.

    Raises:
        PeerFailure: Another process has reported, or this process got SIGTERM.
    """
    report = "another process has ended"
    try:
        deadline = time.monotonic() + _REPORT_SECONDS
        while not store.check([_REPORT]):
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL_SECONDS)
        report = store.get(_REPORT).decode()
        store.add(_READERS, 1)
        # Without torchrun a pause as in the process that reports, see `_wait_for_readers`.
        time.sleep(_SHUTDOWN_SECONDS if dist.is_torchelastic_launched() else _POLL_SECONDS)
    except RuntimeError:  # the store is gone with its host
        return
    except SystemExit:  # SIGTERM
        pass
    raise PeerFailure(report)


def _is_peer_failure(error: Exception) -> bool:
    """Return whether an error in this process is caused by the end of another process."""
    if is_out_of_memory(error) or not isinstance(error, RuntimeError):
        return False
    return isinstance(error, dist.DistError) or _LOST.search(str(error)) is not None


def _reason(error: Exception) -> str:
    """Return the first sentence of an error, without the location in torch's source."""
    text = re.sub(r"^\[[^]]*\] *", "", " ".join(str(error).split()))
    return text.partition(". ")[0][:200]
