"""Estimate of a workflow's remaining time, from durations of jobs now and in earlier builds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FILE = "job_seconds.json"
FIRST_BUILD = Path(__file__).with_name(FILE)
"""File with durations of the default targets' jobs on one machine, for a first build.

The early stopping of a retrieval training cannot be predicted. But the same seed stops at the same
step on every machine, so the durations of two machines differ only by a factor.
"""
_DEFAULT_SECONDS = 5.0  # duration of a job without history: an evaluation, a figure or a page
_MIN_HISTORY = 10.0  # seconds of finished jobs with history from which the factor is estimated


@dataclass(frozen=True)
class Underway:
    """A running job, as input of the estimate."""

    rule: str
    name: str
    seconds: float
    """Seconds since the start of the job."""
    left: float | None = None
    """Remaining seconds that the job itself estimates; None: no estimate."""


class Remaining:
    """Estimate of a workflow's remaining time, updated with every finished job.

    The expected duration of a job is its duration in an earlier build, times the ratio of durations
    now and then. A job without history takes the mean duration of its rule, or else the ETA of a
    running job of its rule. The number of parallel jobs is assumed to stay as it was so far.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        self._took: dict[str, dict[str, float]] = {}
        self._before: dict[str, dict[str, float]] = {}
        self._saved: dict[str, dict[str, float]] = {}

    def plan(self, jobs: Mapping[str, int]) -> None:
        """Set the number of planned jobs of each rule."""
        self._waiting = dict(jobs)

    def load_history(self, folder: Path) -> None:
        """Read the durations of jobs in earlier builds from a folder, if it has any.

        Args:
            folder: Folder of the states of a scale.
        """
        scale = folder.parent.name
        for path in (FIRST_BUILD, folder / FILE):
            with suppress(OSError, ValueError, TypeError, AttributeError):
                recorded = json.loads(path.read_text(encoding="utf-8"))
                for rule, took in (
                    recorded["seconds"] if path == FIRST_BUILD else recorded
                ).items():
                    durations = {str(name): float(seconds) for name, seconds in took.items()}
                    if path == FIRST_BUILD:
                        durations = {
                            name: seconds
                            for name, seconds in durations.items()
                            if name.split()[:1] == [scale]
                        }
                    else:
                        self._saved[str(rule)] = durations
                    self._before[str(rule)] = durations  # of one machine

    def save_history(self, folder: Path) -> None:
        """Write the durations of jobs for the next build; errors of the file system are ignored.

        Args:
            folder: Folder of the states of a scale.
        """
        rules = dict.fromkeys([*self._saved, *self._took])
        durations = {rule: self._saved.get(rule, {}) | self._took.get(rule, {}) for rule in rules}
        with suppress(OSError):
            (folder / FILE).write_text(json.dumps(durations, indent=1), encoding="utf-8")

    def start(self, rule: str) -> None:
        """Record the start of a job of a rule."""
        self._waiting[rule] = max(self._waiting.get(rule, 0) - 1, 0)

    def finish(self, rule: str, name: str, seconds: float) -> None:
        """Record the duration of a finished job in seconds.

        Args:
            rule: Rule of the job.
            name: Values of the job's wildcards.
            seconds: Duration of the job.
        """
        self._took.setdefault(rule, {})[name] = seconds

    def seconds(self, elapsed: float, underway: Iterable[Underway]) -> float | None:
        """Return the estimated remaining seconds of the workflow; None if nothing is known.

        Args:
            elapsed: Seconds since the start of the workflow.
            underway: The running jobs.
        """
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
            expected = [factor * before[name] for name in before if name not in begun]
            familiar = not begun or bool(
                begun & before.keys()
            )  # otherwise other jobs are waiting, too
            if familiar and len(expected) >= count > 0:
                took = expected
            else:
                took = [*ended.values()] or foreseen.get(rule) or expected or [_DEFAULT_SECONDS]
            work += count * sum(took) / len(took) if count else 0.0
        for job in running:
            before, ended = self._before.get(job.rule, {}), self._took.get(job.rule, {})
            lasts = before.get(job.name)
            if lasts is not None and job.seconds < factor * lasts:
                work += factor * lasts - job.seconds
            elif job.left is not None:
                work += job.left
            else:
                took = [*ended.values()] or [_DEFAULT_SECONDS]
                work += max(sum(took) / len(took) - job.seconds, 0)
        spent = sum(sum(took.values()) for took in self._took.values())
        beside = (spent + sum(job.seconds for job in running)) / elapsed
        return work / max(beside, len(running), 1)

    def _factor(self) -> float:
        """Return the ratio of the durations of the same jobs now and in earlier builds."""
        pairs = [
            (seconds, self._before[rule][name])
            for rule, took in self._took.items()
            for name, seconds in took.items()
            if name in self._before.get(rule, {})
        ]
        now, then = map(sum, zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
        return now / then if then >= _MIN_HISTORY else 1.0
