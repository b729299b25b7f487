"""State of a running workflow, and the lines that display it; independent of Snakemake."""

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
"""Prefix of the line in a job's log with the reason of its failure."""
STOPPED = "warning: stopped"
"""Prefix of the last line in the log of an interrupted job."""
_STALE = 60.0  # seconds without update after which the job of a heartbeat file has ended
_MIN_ETA = 10.0  # seconds; a shorter remaining time is not displayed
_SEARCH_SHARE = 0.02  # largest share of time spent on searching for heartbeat files


@dataclass
class RunningJob:
    """A running job of the workflow."""

    rule: str
    wildcards: Mapping[str, str]
    since: float
    states: Path | None
    """Folder with the states of this rule's jobs, which has the heartbeat files of trainings."""

    @property
    def name(self) -> str:
        """Values of the job's wildcards, separated by spaces."""
        return " ".join(map(str, self.wildcards.values()))

    def __str__(self) -> str:
        return f"{self.rule} {self.name}".rstrip()

    def beat(self, beats: Sequence[tuple[Path, dict[str, Any]]]) -> dict[str, Any] | None:
        """Return the content of this job's heartbeat file, or None if it has none.

        Args:
            beats: State folder of a rule and content, for each heartbeat file.
        """
        for states, beat in beats:
            ids = {str(beat.get("run")), str(beat.get("seed"))}
            if states == self.states and ids <= set(map(str, self.wildcards.values())):
                return beat
        return None


class Board:
    """State of a workflow: finished, running and failed jobs, and the heartbeats of trainings."""

    def __init__(self) -> None:
        self._began = time.time()
        self._beats: list[tuple[Path, Path]] = []
        self._search_at = 0.0
        self._remaining = Remaining()
        self._home: Path | None = None
        self.done, self.total = 0, 0
        self.running: dict[int, RunningJob] = {}
        self.failed: dict[int, str] = {}
        """Message of each failed job that no later attempt has finished, by id of the job."""
        self.stopping = False
        """Whether the user is stopping the workflow, so that jobs count as stopped, not failed."""
        self.stopped: set[int] = set()
        """Ids of the jobs that were interrupted."""

    def plan(self, jobs: Mapping[str, int]) -> None:
        """Set the number of planned jobs of each rule."""
        self.total = sum(jobs.values())
        self._remaining.plan(jobs)

    def start(
        self, job: int, rule: str, wildcards: Mapping[str, str], logs: Sequence[str], at: float
    ) -> None:
        """Record the start of a job.

        Args:
            job: Id of the job.
            rule: Rule of the job.
            wildcards: Wildcards of the job.
            logs: Log files of the job, which determine the folder of its state.
            at: Start of the job in seconds since 1970.
        """
        layout = next(filter(None, map(Layout.of_log, logs)), None)
        states = None if layout is None else Path(layout.state(rule))
        if self._home is None and layout is not None:
            self._home = Path(layout.states)
            self._remaining.load_history(self._home)
        self._remaining.start(rule)
        self.running[job] = RunningJob(rule, dict(wildcards), at, states)

    def finish(self, job: int) -> str:
        """Record the end of a finished job, and return the line that reports it.

        Args:
            job: Id of the job.
        """
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
        message: str | None = None,
        killed_by: str | None = None,
    ) -> str:
        """Record a failed or interrupted job, and return lines with its log and error.

        Args:
            job: Id of the job.
            rule: Rule of the job.
            logs: Log files of the job.
            message: Message of Snakemake's executor, such as for a job that never started.
            killed_by: Name of the signal that ended the job, such as "SIGKILL"; None: no signal.
        """
        ended = self.running.pop(job, None)
        log_names, name = ", ".join(logs) or "none", ended or rule
        reason = error_line(logs, message, ended.since if ended is not None else 0.0)
        if self.stopping or killed_by == "SIGINT" or reason.startswith(STOPPED):
            self.stopped.add(job)
            return f"stopped {name}"
        if killed_by is not None and not reason.startswith(ERROR):
            cause = ", most likely for lack of memory" if killed_by == "SIGKILL" else ""
            reason = (
                f"{ERROR} killed by {killed_by}{cause}: the same command resumes; last line of its "
                f"log: {reason}"
            )
        self.failed[job] = f"{name} (log: {log_names})\n    {reason}"
        return f"FAILED {name}\n    log: {log_names}\n    {reason}"

    def lines(self) -> list[str]:
        """Return the lines of the current state: a summary, then one line per running job."""
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
        ahead = self.done < self.total and left is not None and left >= _MIN_ETA
        eta = f", about {clock(left)} left" if ahead and left is not None else ""
        head = f"{self.done} of {self.total} jobs done{failed}, {clock(now - self._began)}{eta}"
        return [head, *(self._line(job, beat) for job, beat in running)]

    def ending(self) -> str:
        """Return the final summary as text: a summary line, then two lines per failed job.

        The durations of jobs are saved for the next build.
        """
        self._remaining.plan({})
        if self._home is not None:
            self._remaining.save_history(self._home)
        head, *_ = self.lines()
        failures = [f"failed: {failure}" for failure in self.failed.values()]
        resumes = ["stopped: the same command resumes"] if self.stopped or self.stopping else []
        return "\n".join([head, *failures, *resumes])

    def _line(self, job: RunningJob, beat: Mapping[str, Any] | None) -> str:
        return f"{job}: {clock(time.time() - job.since) if beat is None else training_line(beat)}"

    def _heartbeats(self) -> list[tuple[Path, dict[str, Any]]]:
        folders = {job.states for job in self.running.values() if job.states is not None}
        if not folders:
            return []
        if time.time() >= self._search_at:
            started = time.time()
            self._beats = [
                (folder, path) for folder in folders for path in folder.rglob("progress.json")
            ]
            took = time.time() - started
            self._search_at = time.time() + max(0.5, took / _SEARCH_SHARE)
        beats = []
        for states, path in self._beats:
            try:
                if time.time() - path.stat().st_mtime < _STALE:
                    beats.append((states, dict(json.loads(path.read_text()))))
            except (OSError, ValueError, TypeError):
                continue  # just replaced or removed
        return beats


def training_line(beat: Mapping[str, Any]) -> str:
    """Return step, loss, speed and ETA of a training in one line, from its heartbeat file."""
    parts = [f"step {beat.get('step', '?')}/{beat.get('steps', '?')}"]
    if (loss := beat.get("loss")) is not None:
        parts.append(f"loss {loss:.3f}")
    if speed := beat.get("tokens_per_second"):
        parts.append(rate(speed))
    if (left := beat.get("eta_seconds")) is not None:
        parts.append(f"ETA {clock(left)}")
    return " ".join(parts)


def error_line(logs: Sequence[str], message: str | None = None, since: float = 0.0) -> str:
    """Return the last ``error:`` line in the logs of a job, or else the last line.

    Args:
        logs: Log files of the job.
        message: Snakemake's message about the job. Its first line is returned if the logs are
            empty.
        since: Start of the job. If there is a message, logs older than the start are ignored, since
            they belong to an earlier attempt.
    """
    first_line = message.strip().splitlines()[0] if message and message.strip() else None
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
