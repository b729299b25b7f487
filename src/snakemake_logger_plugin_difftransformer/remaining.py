"""How long a workflow will still take: what its jobs took, now and in earlier builds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FILE = "job_seconds.json"
FIRST_BUILD = Path(__file__).with_name(FILE)
"""What the jobs of the default targets took once, with the day and the machine: a first build has
no memory, and a training of retrieval does not foresee how early it stops. The same seed stops at
the same step everywhere, so that another machine differs by a factor."""
_GUESS = 5.0  # of a job of which nothing is known: an evaluation, a picture or a page
_ENOUGH = 10.0  # remembered seconds of jobs that have ended, before they tell this machine's factor


@dataclass(frozen=True)
class Underway:
    """A job that runs."""

    rule: str
    name: str
    seconds: float
    """Since it started."""
    left: float | None = None
    """What it says of itself, if it does."""


class Remaining:
    """An estimate that gets better with every job that ends.

    A job is taken to last as long as it did in an earlier build, times what those that have ended
    took more than then. Where it is not remembered, as long as those of its rule that have ended,
    else as one that runs foresees. As many run side by side as have so far, or do now.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        self._took: dict[str, dict[str, float]] = {}
        self._before: dict[str, dict[str, float]] = {}
        self._kept: dict[str, dict[str, float]] = {}

    def plan(self, jobs: Mapping[str, int]) -> None:
        """Take how many jobs of each rule there are to do."""
        self._waiting = dict(jobs)

    def recall(self, folder: Path) -> None:
        """Take what jobs took in earlier builds, if that was kept there."""
        scale = folder.parent.name
        for path in (FIRST_BUILD, folder / FILE):
            with suppress(OSError, ValueError, TypeError, AttributeError):
                recorded = json.loads(path.read_text(encoding="utf-8"))
                for rule, took in (
                    recorded["seconds"] if path == FIRST_BUILD else recorded
                ).items():
                    known = {str(name): float(seconds) for name, seconds in took.items()}
                    if path == FIRST_BUILD:
                        known = {name: known[name] for name in known if name.split()[:1] == [scale]}
                    else:
                        self._kept[str(rule)] = known
                    self._before[str(rule)] = known  # of one machine

    def keep(self, folder: Path) -> None:
        """Keep what jobs took for the next build; a folder that refuses is no reason to fail."""
        rules = dict.fromkeys([*self._kept, *self._took])
        kept = {rule: self._kept.get(rule, {}) | self._took.get(rule, {}) for rule in rules}
        with suppress(OSError):
            (folder / FILE).write_text(json.dumps(kept, indent=1), encoding="utf-8")

    def start(self, rule: str) -> None:
        """Note that a job has begun."""
        self._waiting[rule] = max(self._waiting.get(rule, 0) - 1, 0)

    def finish(self, rule: str, name: str, seconds: float) -> None:
        """Note what a job took."""
        self._took.setdefault(rule, {})[name] = seconds

    def seconds(self, elapsed: float, underway: Iterable[Underway]) -> float | None:
        """Return how long it will take from now on; None before anything could be known."""
        running = list(underway)
        foreseen: dict[str, list[float]] = {}
        for job in running:
            if job.left is not None:
                foreseen.setdefault(job.rule, []).append(job.seconds + job.left)
        if not (self._took or foreseen or any(self._before.values())) or elapsed <= 0:
            return None
        factor = self._factor()
        work = 0.0
        for rule, count in self._waiting.items():
            before, ended = self._before.get(rule, {}), self._took.get(rule, {})
            begun = {*ended, *(job.name for job in running if job.rule == rule)}
            known = [factor * before[name] for name in before if name not in begun]
            familiar = not begun or bool(begun & before.keys())  # else what waits is others, too
            if familiar and len(known) >= count > 0:
                took = known
            else:
                took = [*ended.values()] or foreseen.get(rule) or known or [_GUESS]
            work += count * sum(took) / len(took) if count else 0.0
        for job in running:
            before, ended = self._before.get(job.rule, {}), self._took.get(job.rule, {})
            lasts = before.get(job.name)
            if lasts is not None and job.seconds < factor * lasts:
                work += factor * lasts - job.seconds
            elif job.left is not None:
                work += job.left
            else:
                took = [*ended.values()] or [_GUESS]
                work += max(sum(took) / len(took) - job.seconds, 0)
        spent = sum(sum(took.values()) for took in self._took.values())
        beside = (spent + sum(job.seconds for job in running)) / elapsed
        return work / max(beside, len(running), 1)

    def _factor(self) -> float:
        """How much longer jobs took now than those of the same name in earlier builds."""
        pairs = [
            (seconds, self._before[rule][name])
            for rule, took in self._took.items()
            for name, seconds in took.items()
            if name in self._before.get(rule, {})
        ]
        now, then = map(sum, zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
        return now / then if then >= _ENOUGH else 1.0
