"""What is known about a running workflow, and the lines that say it; knows no Snakemake."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from difftransformer.provenance.layout import Layout
from difftransformer.training.progress import clock, rate
from snakemake_logger_plugin_difftransformer.remaining import Remaining, Underway

ERROR = "error:"
"""How the line of a log begins that says why its job failed."""
STOPPED = "warning: stopped"
"""How the last line of a log begins whose job was stopped from outside."""
_STALE = 60.0  # seconds after which a heartbeat belongs to a job that is gone
_WORTH_SAYING = 10.0  # seconds that something must still take before it is said
_SEARCH_SHARE = 0.02  # of the time, at most, goes into searching for heartbeat files


@dataclass
class RunningJob:
    """A job that was started."""

    rule: str
    wildcards: Mapping[str, str]
    since: float
    states: Path | None
    """Folder where jobs of this rule keep their state, and trainings their heartbeat."""

    @property
    def name(self) -> str:
        """What tells it from others of its rule."""
        return " ".join(map(str, self.wildcards.values()))

    def __str__(self) -> str:
        return f"{self.rule} {self.name}".rstrip()

    def beat(self, beats: Sequence[tuple[Path, dict[str, Any]]]) -> dict[str, Any] | None:
        """The heartbeat of this job among those that there are."""
        for states, beat in beats:
            named = {str(beat.get("run")), str(beat.get("seed"))}
            if states == self.states and named <= set(map(str, self.wildcards.values())):
                return beat
        return None


class Board:
    """Jobs done, running and failed, and the heartbeats of training jobs."""

    def __init__(self) -> None:
        self._began = time.time()
        self._beats: list[tuple[Path, Path]] = []
        self._search_at = 0.0
        self._remaining = Remaining()
        self._home: Path | None = None
        self.done, self.total = 0, 0
        self.running: dict[int, RunningJob] = {}
        self.failed: dict[int, str] = {}
        """What is said of each job that failed and was not done since."""
        self.stopping = False
        """Whether the user has stopped the workflow: jobs that end now have not failed."""
        self.stopped: set[int] = set()
        """Jobs that ended because they were stopped."""

    def plan(self, jobs: Mapping[str, int]) -> None:
        """Take how many jobs of each rule there are to do."""
        self.total = sum(jobs.values())
        self._remaining.plan(jobs)

    def start(
        self, job: int, rule: str, wildcards: Mapping[str, str], logs: Sequence[str], at: float
    ) -> None:
        """Note that a job runs since ``at``; the folder of states is found by its logs."""
        layout = next(filter(None, map(Layout.of_log, logs)), None)
        states = None if layout is None else Path(layout.state(rule))
        if self._home is None and layout is not None:
            self._home = Path(layout.states)
            self._remaining.recall(self._home)
        self._remaining.start(rule)
        self.running[job] = RunningJob(rule, dict(wildcards), at, states)

    def finish(self, job: int) -> str:
        """Note that a job is done; gives the line that says so."""
        self.done += 1
        self.failed.pop(job, None)
        self.stopped.discard(job)
        ended = self.running.pop(job, None)
        if ended is None:
            return f"[{self.done}/{self.total}] job {job}"
        seconds = time.time() - ended.since
        self._remaining.finish(ended.rule, ended.name, seconds)
        return f"[{self.done}/{self.total}] {ended} in {clock(seconds)}"

    def fail(
        self,
        job: int,
        rule: str,
        logs: Sequence[str],
        said: str | None = None,
        died: str | None = None,
    ) -> str:
        """Note that a job failed or was stopped; gives its log and the error in it, or one line.

        ``said`` is what its executor says of it: all there is of a job that never started. ``died``
        is the signal that ended it.
        """
        ended = self.running.pop(job, None)
        where, who = ", ".join(logs) or "none", ended or rule
        reason = error_line(logs, said, ended.since if ended is not None else 0.0)
        if self.stopping or died == "SIGINT" or reason.startswith(STOPPED):
            self.stopped.add(job)
            return f"stopped {who}"
        if died is not None and not reason.startswith(ERROR):
            want = ", most likely for want of memory" if died == "SIGKILL" else ""
            reason = f"{ERROR} ended by {died}{want}: the same call goes on; it said last: {reason}"
        self.failed[job] = f"{who} (log: {where})\n    {reason}"
        return f"FAILED {who}\n    log: {where}\n    {reason}"

    def lines(self) -> list[str]:
        """Describe the state now: a head line, then one for each running job."""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        failed += f", {len(self.stopped)} stopped" if self.stopped else ""
        now, beats = time.time(), self._heartbeats()
        running = [(job, job.beat(beats)) for job in list(self.running.values())]
        left = self._remaining.seconds(
            now - self._began,
            [
                Underway(job.rule, job.name, now - job.since, (beat or {}).get("eta_seconds"))
                for job, beat in running
            ],
        )
        ahead = self.done < self.total and left is not None and left >= _WORTH_SAYING
        eta = f", about {clock(left)} left" if ahead and left is not None else ""
        head = f"{self.done} of {self.total} jobs done{failed}, {clock(now - self._began)}{eta}"
        return [head, *(self._line(job, beat) for job, beat in running)]

    def ending(self) -> str:
        """One line on the whole, and two for each failure, the error last."""
        self._remaining.plan({})
        if self._home is not None:
            self._remaining.keep(self._home)
        head, *_ = self.lines()
        failures = [f"failed: {failure}" for failure in self.failed.values()]
        resumes = ["stopped: the same call resumes"] if self.stopped or self.stopping else []
        return "\n".join([head, *failures, *resumes])

    def _line(self, job: RunningJob, beat: Mapping[str, Any] | None) -> str:
        return f"{job}: {clock(time.time() - job.since) if beat is None else training_line(beat)}"

    def _heartbeats(self) -> list[tuple[Path, dict[str, Any]]]:
        folders = {job.states for job in self.running.values() if job.states is not None}
        if not folders:
            return []
        if time.time() >= self._search_at:
            started = time.time()
            self._beats = [(one, p) for one in folders for p in one.rglob("progress.json")]
            took = time.time() - started
            self._search_at = time.time() + max(0.5, took / _SEARCH_SHARE)
        beats = []
        for states, path in self._beats:
            try:
                if time.time() - path.stat().st_mtime < _STALE:
                    beats.append((states, dict(json.loads(path.read_text()))))
            except (OSError, ValueError, TypeError):
                continue  # just replaced or cleaned away: the next look will tell
        return beats


def training_line(beat: Mapping[str, Any]) -> str:
    """Step, loss, speed and remaining time of a training job."""
    parts = [f"step {beat.get('step', '?')}/{beat.get('steps', '?')}"]
    if (loss := beat.get("loss")) is not None:
        parts.append(f"loss {loss:.3f}")
    if speed := beat.get("tokens_per_second"):
        parts.append(rate(speed))
    if (left := beat.get("eta_seconds")) is not None:
        parts.append(f"ETA {clock(left)}")
    return " ".join(parts)


def error_line(logs: Sequence[str], said: str | None = None, since: float = 0.0) -> str:
    """Find the last line of the logs that begins with ``error:``, else the last line there is.

    Without such a log line, the first line of ``said``, Snakemake's message about the job. With
    ``said``, a log older than ``since``, the start of the job, belongs to an earlier try.
    """
    first_line = said.strip().splitlines()[0] if said and said.strip() else None
    last = first_line or "the log is empty"
    for log in reversed(logs):
        try:
            if first_line is not None and Path(log).stat().st_mtime < since:
                continue
            lines = Path(log).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        lines = [line.strip() for line in lines if line.strip()]
        errors = [line for line in lines if line.startswith(ERROR)]
        if errors:
            return errors[-1]
        last = lines[-1] if lines else last
    return last
