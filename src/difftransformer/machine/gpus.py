"""The cards of this machine, and which job has which: nobody else hands them out.

Snakemake counts them and gives no ids; a scheduler that gives them, as Slurm does, is believed.
"""

import logging
import os
import tempfile
import time
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from difftransformer.errors import UserError
from difftransformer.machine import slurm
from difftransformer.machine.locks import open_lock, sign, wait_for_lock

VISIBLE = "CUDA_VISIBLE_DEVICES"
TAKEN = "DIFFTRANSFORMER_GPUS_TAKEN"
"""Set for the processes that a job starts: they share its cards and take none."""
SHARED = "DIFFTRANSFORMER_JOBS_PER_GPU"
"""How many jobs a card has at a time. Where models are so small that a step takes the time in which
its kernels are started, a few share one at little cost; each looks at the memory that is free."""

_PAUSE = 1.0  # seconds between two looks at what is free

logger = logging.getLogger(__name__)


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


def take(count: int = 1) -> None:
    """Make ``count`` cards this process's own until it ends, waiting until so many are free.

    CUDA then sees these alone, here and in all processes that this one starts: call it before CUDA
    is asked for anything. Where there are no cards, or a scheduler or the process that started this
    one has chosen them, nothing happens.

    Raises:
        UserError: There are fewer cards, the folder of the locks belongs to somebody else, or the
            environment does not say how many jobs share a card.
    """
    cards, sharing = pool(), _jobs_per_card()
    scheduled = slurm.job_id() is not None and VISIBLE in os.environ
    launched = "LOCAL_RANK" in os.environ  # by torchrun: each process takes the card of its number
    if not cards or TAKEN in os.environ or scheduled or launched:
        return
    if count > len(cards):
        raise UserError(
            f"{count} GPUs are asked for and {len(cards)} are here: lower training.world, or free "
            f"more by {VISIBLE}"
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
    """Take a place on each of ``count`` cards, the emptiest first; locks stay with the process."""
    taken: list[str] = []
    said: list[str] = []
    with ExitStack() as given_back:
        while True:
            holders = []
            for place, card in product(range(sharing), cards):
                if len(taken) == count:
                    break
                if card in taken:
                    continue
                name = f"gpu-{card}.lock" if place == 0 else f"gpu-{card}-{place}.lock"
                descriptor, holder = open_lock(folder / name)
                if holder is None:
                    sign(descriptor)
                    given_back.callback(os.close, descriptor)
                    taken.append(card)
                else:
                    os.close(descriptor)
                    holders.append(f"{card} (process {holder})")
            if len(taken) == count:
                given_back.pop_all()
                return taken
            if holders != said:
                said = holders
                logger.info("waiting for %d GPUs; taken: %s", count - len(taken), ", ".join(said))
            time.sleep(_PAUSE)


def _jobs_per_card() -> int:
    said = os.environ.get(SHARED, "1")
    if not said.isdecimal() or int(said) < 1:
        raise UserError(f"{SHARED} is {said!r}: give the number of jobs that share a GPU, from 1")
    return int(said)


def _folder() -> Path:
    """Return the folder of this user's locks on this machine."""
    folder = Path(tempfile.gettempdir(), f"difftransformer-gpus-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise UserError(f"{folder} belongs to somebody else: remove it, or set TMPDIR")
    return folder
