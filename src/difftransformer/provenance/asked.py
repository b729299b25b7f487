"""Which settings of a job were asked for last: what is at work for older ones publishes nothing.

A workflow that is killed leaves jobs at work, and a scheduler starts some of them again. Theirs
would lie where what newer settings made is to lie, and Snakemake would take it for that.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from difftransformer.errors import UserError
from difftransformer.provenance.atomic import write_text

VARIABLE = "DIFFTRANSFORMER_ASKED"
"""When the workflow was called, seconds since 1970; a job that it starts again keeps it."""
FILE = "asked.json"
"""Beside the state folders of a job's settings."""


class Asked(NamedTuple):
    """Settings of a job, by the name of their state folder, and when they were asked for."""

    at: float
    settings: str


_at_work: list[Path] = []
"""State folders of the jobs of this process, the innermost last."""


@contextmanager
def asking(state: Path) -> Iterator[None]:
    """Ask for the settings of a state folder while the block is at work for them.

    Raises:
        UserError: Others were asked for since the workflow of this job was called.
    """
    here = Asked(float(os.environ.get(VARIABLE, time.time())), state.name)
    newest = _newest(state)
    if newest is None or newest.at <= here.at:
        write_text(state.parent / FILE, json.dumps(here._asdict()))
    _at_work.append(state)
    try:
        require_newest()
        yield
    finally:
        _at_work.pop()


def require_newest() -> None:
    """Check, before anything is published, that nobody has asked for other settings meanwhile.

    Raises:
        UserError: Somebody has.
    """
    for state in _at_work[-1:]:
        newest = _newest(state)
        if newest is not None and newest.settings != state.name:
            raise UserError(
                f"{state.parent} was asked for with other settings since this job began: it "
                "publishes nothing, and what it did is kept for when its settings are asked for "
                "again"
            )


def _newest(state: Path) -> Asked | None:
    try:
        return Asked(**json.loads((state.parent / FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None  # none yet, or what a full disk left of it
