"""What it saves to compute once what prompts have in common: positions, and seconds of some."""

import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from difftransformer.provenance.atomic import write_text


def record_sharing(
    path: Path, *, computed: int, given: int, timed: int, ask: Callable[[bool], object]
) -> dict[str, int]:
    """Write what sharing saved; return the positions, which are the same on each machine.

    Args:
        path: The file, JSON.
        computed: Positions that were computed.
        given: Positions of all prompts.
        timed: How many prompts ``ask`` answers.
        ask: Answers some prompts again, sharing what they have in common or each alone.
    """
    positions = {"computed_positions": computed, "given_positions": given}
    speed: dict[str, float] = {}
    if timed:
        for name, share in (("shared_seconds", True), ("alone_seconds", False)):
            begun = perf_counter()
            ask(share)
            speed[name] = perf_counter() - begun
        speed |= {"timed": timed, "speed_up": speed["alone_seconds"] / speed["shared_seconds"]}
    # Seconds are no two times the same: what compares builds leaves out provenance.
    write_text(path, json.dumps(positions | {"provenance": speed}, indent=2))
    return positions
