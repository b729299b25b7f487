"""The cards of this machine, and which job has which: nobody else hands them out.

Snakemake counts them and gives no ids; a scheduler that gives them, as Slurm does, is believed.
"""

import logging
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from difftransformer.errors import UserError
from difftransformer.machine import slurm
from difftransformer.machine.locks import open_lock, sign, wait_for_lock

VISIBLE = "CUDA_VISIBLE_DEVICES"
TAKEN = "DIFFTRANSFORMER_GPUS_TAKEN"
"""Set for the processes that a job starts: they share its cards and take none."""

_PAUSE = 1.0  # seconds between two looks at what is free

logger = logging.getLogger(__name__)


def pool() -> list[str]:
    """Return the ids of the cards that may be used: what CUDA_VISIBLE_DEVICES says, or all."""
    said = os.environ.get(VISIBLE)
    if said is not None:
        return [id.strip() for id in said.split(",") if id.strip() not in {"", "-1"}]
    return [str(number) for number, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]


def take(count: int = 1) -> None:
    """Make ``count`` cards this process's own until it ends, waiting until so many are free.

    CUDA then sees these alone, here and in all processes that this one starts: call it before CUDA
    is asked for anything. Where there are no cards, or a scheduler or the process that started this
    one has chosen them, nothing happens.

    Raises:
        UserError: There are fewer cards, or the folder of the locks belongs to somebody else.
    """
    cards = pool()
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
        taken = _collect(folder, cards, count)
    finally:
        os.close(turn)
    os.environ[VISIBLE] = os.environ[TAKEN] = ",".join(taken)
    logger.info("computing on GPU %s of %s", ",".join(taken), ",".join(cards))


def _collect(folder: Path, cards: list[str], count: int) -> list[str]:
    """Take ``count`` cards; their locks stay open with the process."""
    taken: list[str] = []
    said: list[str] = []
    with ExitStack() as given_back:
        while True:
            holders = []
            for card in (one for one in cards if one not in taken):
                if len(taken) == count:
                    break
                descriptor, holder = open_lock(folder / f"gpu-{card}.lock")
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


def _folder() -> Path:
    """Return the folder of this user's locks on this machine."""
    folder = Path(tempfile.gettempdir(), f"difftransformer-gpus-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise UserError(f"{folder} belongs to somebody else: remove it, or set TMPDIR")
    return folder
