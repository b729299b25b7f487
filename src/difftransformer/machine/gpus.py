"""The cards of this machine, and which job has which: nobody else hands them out.

Snakemake counts them and gives no ids. A scheduler that gives a job its own, as Slurm does, is
believed; several that it gives to many jobs together are handed out here, too.
"""

import logging
import os
import re
import stat
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from difftransformer.errors import BackendError, UserError
from difftransformer.machine import slurm
from difftransformer.machine.locks import open_lock, sign, wait_for_lock

if TYPE_CHECKING:
    import torch

VISIBLE = "CUDA_VISIBLE_DEVICES"
TAKEN = "DIFFTRANSFORMER_GPUS_TAKEN"
"""Set for the processes that a job starts: they share its cards and take none."""
SHARED = "DIFFTRANSFORMER_JOBS_PER_GPU"
"""How many jobs a card has at a time. Where models are so small that a step takes the time in which
its kernels are started, a few share one at little cost; each looks at the memory that is free."""

_BF16_PEAKS = {
    "H100 PCIe": 7.56e14,
    "H100 NVL": 8.35e14,
    "H200 NVL": 8.35e14,
    "H100": 9.89e14,
    "H200": 9.89e14,
    "A100": 3.12e14,
}
"""Peak FLOP/s of dense matrix products by model; the first match counts. Source: NVIDIA's data
sheets."""
_BANDWIDTHS = {
    "H100 PCIe": 2.0e12,
    "H100 NVL": 3.9e12,
    "H100": 3.35e12,
    "H200": 4.8e12,
    "A100-SXM4-80GB": 2.04e12,
    "A100 80GB PCIe": 1.94e12,
    "A100-SXM4-40GB": 1.56e12,
    "A100-PCIE-40GB": 1.56e12,
}
"""Memory bandwidth in bytes/s, as `_BF16_PEAKS`."""
_PAUSE = 1.0  # seconds between two looks at what is free

logger = logging.getLogger(__name__)


def bf16_peak(name: str) -> float | None:
    """Return the peak FLOP/s of a GPU in bf16 by its name; None for models without an entry.

    Names match as whole words: a GH200 is not an H200.
    """
    return _by_name(_BF16_PEAKS, name)


def memory_bandwidth(name: str) -> float | None:
    """Return the memory bandwidth of a GPU in bytes/s, as `bf16_peak`."""
    return _by_name(_BANDWIDTHS, name)


def _by_name(table: dict[str, float], name: str) -> float | None:
    values = (value for model, value in table.items() if re.search(rf"\b{model}\b", name))
    return next(values, None)


def pool() -> list[str]:
    """Return the ids of the cards that may be used: what CUDA_VISIBLE_DEVICES says, or all."""
    said = os.environ.get(VISIBLE)
    if said is not None:
        return [id.strip() for id in said.split(",") if id.strip() not in {"", "-1"}]
    return [str(number) for number, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]


def places() -> int:
    """Return how many jobs of one card each can compute here at a time.

    Raises:
        UserError: The environment does not say how many share a card.
    """
    return len(pool()) * _jobs_per_card()


def choose_device(name: str, setting: str, *, alone: bool = False) -> "torch.device":
    """Return the device of a job; ``auto`` picks CUDA if it is available, and logs the choice.

    A GPU is reserved for this process until it ends, see `take`.

    Args:
        name: "cpu", "cuda" or "auto".
        setting: Name of the setting, for messages.
        alone: Whether to use the GPU exclusively where jobs share GPUs.

    Raises:
        BackendError: ``name`` is "cuda" and torch sees no CUDA device.
    """
    import torch

    if name != "cpu":
        take(alone=alone)
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise BackendError(
            f"{setting} is cuda but torch sees no CUDA device: use cpu or auto, or install a CUDA "
            "build of torch"
        )
    device = torch.device("cuda" if has_cuda and name != "cpu" else "cpu")
    if name == "auto":
        logger.info("%s auto: picked %s", setting, device)
    return device


def take(count: int = 1, *, alone: bool = False) -> None:
    """Make ``count`` cards this process's own until it ends, waiting until so many are free.

    Where jobs share cards, one of a single card has a place on it, unless it is to be ``alone``.

    CUDA then sees these alone, here and in all processes that this one starts: call it before CUDA
    is asked for anything. Where there are no cards, or a scheduler has given so many or the process
    that started this one has chosen them, nothing happens.

    Raises:
        UserError: There are fewer cards, the folder of the locks belongs to somebody else, or the
            environment does not say how many jobs share a card.
    """
    cards, most = pool(), _jobs_per_card()
    sharing = 1 if alone or count > 1 else most
    given = _scheduled() and len(cards) == count and most == 1
    launched = "LOCAL_RANK" in os.environ  # by torchrun: each process takes the card of its number
    if not cards or TAKEN in os.environ or given or launched:
        return
    if count > len(cards):
        raise UserError(
            f"{count} GPUs are requested and {len(cards)} are visible: lower training.world_size, "
            f"or list more in {VISIBLE}"
        )
    folder = _folder()
    # Who waits for several keeps others from taking them one by one; they wait for their turn.
    turn, holder = open_lock(folder / "turn.lock")
    try:
        if holder is not None:
            logger.info("waiting for a GPU behind process %s", holder)
            wait_for_lock(turn)
        sign(turn)
        taken = _collect(folder, cards, count, sharing)
    finally:
        os.close(turn)
    os.environ[VISIBLE] = os.environ[TAKEN] = ",".join(taken)
    logger.info("computing on GPU %s of %s", ",".join(taken), ",".join(cards))


def _collect(folder: Path, cards: list[str], count: int, sharing: int) -> list[str]:
    """Take ``count`` cards, or a place on each, the emptiest first; locks stay with the process."""
    taken: list[str] = []
    said: list[str] = []
    with ExitStack() as given_back:
        while True:
            holders = {card: _holders(folder, card) for card in cards if card not in taken}
            for card in sorted(holders, key=lambda one: len(holders[one])):
                if len(taken) == count:
                    break
                if (free := _free(card, holders[card], sharing)) is None:
                    continue
                descriptor, holder = open_lock(folder / free)
                assert holder is None, holder  # whoever takes any waits for this one's turn
                sign(descriptor)
                given_back.callback(os.close, descriptor)
                taken.append(card)
            if len(taken) == count:
                given_back.pop_all()
                return taken
            waiting = [
                f"{card} (process {holder})"
                for card, by_lock in holders.items()
                for holder in by_lock.values()
                if card not in taken
            ]
            if waiting != said:
                said = waiting
                logger.info("waiting for %d GPUs; taken: %s", count - len(taken), ", ".join(said))
            time.sleep(_PAUSE)


def _free(card: str, holders: dict[str, str], sharing: int) -> str | None:
    """The lock of a card, or of a place on it, that can be taken; None: there is none."""
    whole = f"gpu-{card}.lock"
    if sharing == 1:
        return None if holders else whole
    if whole in holders:
        return None
    own = (f"gpu-{card}-{place}.lock" for place in range(sharing))
    return next((one for one in own if one not in holders), None)


def _holders(folder: Path, card: str) -> dict[str, str]:
    """Who has a card, or a place on it, by lock."""
    found = {}
    for path in (folder / f"gpu-{card}.lock", *sorted(folder.glob(f"gpu-{card}-*.lock"))):
        descriptor, holder = open_lock(path)
        os.close(descriptor)
        if holder is not None:
            found[path.name] = holder
    return found


def _scheduled() -> bool:
    """Whether a scheduler says which cards there are: for this process, or for more beside it."""
    return slurm.job_id() is not None and VISIBLE in os.environ


def _jobs_per_card() -> int:
    said = os.environ.get(SHARED, "1")
    if not said.isdecimal() or int(said) < 1:
        raise UserError(f"{SHARED} is {said!r}: give the number of jobs that share a GPU, from 1")
    return int(said)


def _folder() -> Path:
    """Return the folder of this user's locks on this machine, or in this allocation of it.

    Cards of two allocations may have the same ids: each can count its own from 0.
    """
    allocation = f"-{slurm.job_id()}" if _scheduled() else ""
    folder = Path(tempfile.gettempdir(), f"difftransformer-gpus-{os.getuid()}{allocation}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()  # other users can guess its name and create it first
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise UserError(
            f"{folder}: must be a folder of yours, writable only by you: remove it, or set TMPDIR"
        )
    return folder
