"""How long a workflow will still take: what its jobs took, by rule, now and in earlier builds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FILE = "job_seconds.json"
_GUESS = 5.0  # of a job of which nothing is known: an evaluation, a picture or a page


@dataclass(frozen=True)
class Underway:
    """A job that runs."""

    rule: str
    seconds: float
    """Since it started."""
    left: float | None = None
    """What it says of itself, if it does."""


class Remaining:
    """An estimate that gets better with every job that ends.

    A rule's jobs are taken to last as long as those of it that have ended, else as one that runs
    foresees, else as in an earlier build. Jobs run side by side as they have so far.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        self._took: dict[str, list[float]] = {}
        self._before: dict[str, float] = {}

    def plan(self, jobs: Mapping[str, int]) -> None:
        """Take how many jobs of each rule there are to do."""
        self._waiting = dict(jobs)

    def recall(self, folder: Path) -> None:
        """Take what jobs took in earlier builds, if that was kept there."""
        with suppress(OSError, ValueError, TypeError, AttributeError):
            kept = json.loads((folder / FILE).read_text(encoding="utf-8"))
            self._before = {str(rule): float(seconds) for rule, seconds in kept.items()}

    def keep(self, folder: Path) -> None:
        """Keep what jobs took for the next build; a folder that refuses is no reason to fail."""
        means = {rule: sum(took) / len(took) for rule, took in self._took.items()}
        with suppress(OSError):
            (folder / FILE).write_text(json.dumps(self._before | means, indent=1), encoding="utf-8")

    def start(self, rule: str) -> None:
        """Note that a job has begun."""
        self._waiting[rule] = max(self._waiting.get(rule, 0) - 1, 0)

    def finish(self, rule: str, seconds: float) -> None:
        """Note what a job took."""
        self._took.setdefault(rule, []).append(seconds)

    def seconds(self, elapsed: float, underway: Iterable[Underway]) -> float | None:
        """Return how long it will take from now on; None before anything could be known."""
        running = list(underway)
        foreseen: dict[str, list[float]] = {}
        for job in running:
            if job.left is not None:
                foreseen.setdefault(job.rule, []).append(job.seconds + job.left)
        if not self._took and not foreseen:
            return None

        def lasts(rule: str) -> float:
            for known in (self._took, foreseen):
                if took := known.get(rule):
                    return sum(took) / len(took)
            return self._before.get(rule, _GUESS)

        work = sum(count * lasts(rule) for rule, count in self._waiting.items())
        for job in running:
            work += max(lasts(job.rule) - job.seconds, 0) if job.left is None else job.left
        done = sum(map(sum, self._took.values())) + sum(job.seconds for job in running)
        return work / max(done / elapsed, 1) if elapsed > 0 else None
