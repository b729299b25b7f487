"""Histories as runs of MLflow.

Sending can be interrupted anywhere and repeated: a run is found by the id of its history, MLflow
stores a point of the same time, step and value once, and params and tags are set again.

Jobs of one stage and name (``tiny/diff_v1/0``) but different fingerprints supersede each other:
when one has finished, the others get the tag ``superseded_by`` and are deleted softly, so the
default view of the UI shows the runs that tables use; its filter "State: Deleted" shows and
restores the others. A job that finishes again restores its run. Only runs of this results folder
are continued, ended or superseded, by its id (`store.open_store`); a training that resumed from the
copied checkpoint of a lost machine also ends the run of that machine.
"""

from __future__ import annotations

import getpass
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

for _name, _value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # we try again ourselves, later
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # it prints passwords of the address
    "PGCONNECT_TIMEOUT": "30",
}.items():
    os.environ.setdefault(_name, _value)

from mlflow.entities import Experiment, Metric, Param, Run, RunTag, ViewType  # noqa: E402
from mlflow.exceptions import MlflowException  # noqa: E402
from mlflow.utils.mlflow_tags import MLFLOW_USER  # noqa: E402

from difftransformer.errors import DataError  # noqa: E402
from difftransformer.machine.locks import locked  # noqa: E402
from difftransformer.tracking.address import ROOT, is_database  # noqa: E402
from difftransformer.tracking.history import (  # noqa: E402
    COPY,
    HISTORY_FILE,
    HISTORY_ID,
    KEY_METRIC,
    TERMINAL,
    Record,
    Sent,
    header,
    is_written,
    read_records,
    was_killed,
)
from difftransformer.tracking.store import PREFIX, WORKSPACE, artifact_location, open_store  # noqa: E402
from difftransformer.tracking.views import (  # noqa: E402
    STAGES,
    artifact_tags,
    find_or_create,
    run_path,
    show_metrics,
    view_path,
)

SENDING = "tracking.lock"
"""Held by one sender at a time: the job's own thread, or a later synchronisation."""
_HISTORY, _JOB = f"{PREFIX}.{HISTORY_ID}", f"{PREFIX}.job"
"""Tags of a run: the id of its history, and the name of its job."""
_SEEN = f"{PREFIX}.seen"
"""Tag of a run: when its job last finished; its end time is when the job first finished."""
_SUPERSEDED, _CONTINUED = "superseded_by", "continued_by"
"""Tags of a run that another run of its job replaces: one of other settings, or of a training that
resumed after its machine was lost."""

for _name in ("mlflow", "alembic"):
    _library = logging.getLogger(_name)
    _library.setLevel(logging.WARNING)  # hides the messages of migrations
    _library.handlers.clear()  # our handlers mask secrets
    _library.propagate = True
logger = logging.getLogger(__name__)


class MlflowRuns:
    """The runs of a results folder in a store; a missing SQLite file is created.

    Args:
        uri: Address as `address.resolve_uri` returns it.
        root: The results folder, which stores the artifacts of a database without a server.
    """

    def __init__(self, uri: str, root: Path = ROOT) -> None:
        self._uri, self._root = uri, root
        self._experiments: dict[str, str] = {}
        self.client, self._workspace = open_store(uri, root)
        self._mine = f"tags.`{WORKSPACE}` = '{self._workspace}'"

    def experiment(self, stage: str) -> str:
        """Return the id of a stage's experiment, created if missing."""
        if stage not in self._experiments:
            location, owned = None, dict[str, str]()
            if is_database(self._uri):
                location, owned = artifact_location(self._root), {WORKSPACE: self._workspace}
            name = f"{PREFIX}/{stage}"
            self._experiments[stage] = find_or_create(self.client, name, stage, location, owned)
        return self._experiments[stage]

    def send(self, state: Path) -> None:
        """Send the new records of the history in ``state``.

        Raises:
            DataError: the first line of the history is damaged.
            Exception: any error of the store; the same records are sent again the next time.
        """
        with locked(state / SENDING):
            job, sent = header(state), Sent.load(state, self._uri)
            if not job or sent.offset >= (state / HISTORY_FILE).stat().st_size:
                return
            if job["kind"] != "job":
                raise DataError(
                    f"{state / HISTORY_FILE}: its first line is damaged, so its run is unknown; "
                    "delete the file to continue without it"
                )
            run = self._open_run(job, sent.run_id)
            run_id = run.info.run_id
            records, end = read_records(state, sent.offset if run_id == sent.run_id else 0)
            metrics, artifacts, status = list[Metric](), list[str](), None
            texts: dict[str, dict[str, str]] = {"params": {}, "tags": {}}
            for record in records:
                match record["kind"]:
                    case "metrics":
                        at, step, values = record["at"], record["step"], record["values"]
                        metrics += [Metric(key, value, at, step) for key, value in values.items()]
                    case "params" | "tags" as kind:
                        texts[kind] |= record["values"]
                    case "artifact":
                        artifacts.append(record["path"])
                    case "status":
                        status = record
            tags = texts["tags"] | (_ending_tags(status) if status else {})
            params = [Param(*item) for item in texts["params"].items()]
            self.client.log_batch(run_id, metrics, params, [RunTag(*tag) for tag in tags.items()])
            if key := tags.get(KEY_METRIC):
                show_metrics(self.client, self.experiment(job["stage"]), job["stage"], [key])
            for name in dict.fromkeys(artifacts):
                self._send_artifact(run_id, state / name)
            if status is not None:
                self._set_status(run, run.data.tags | tags, job, status)
            ended = sent.ended if status is None else status["status"] in TERMINAL
            Sent(run_id, end, ended).save(state, self._uri)

    def find(self, job_id: str) -> str | None:
        """Return the path of a job's run on the server, or None without one.

        In a copy of a results folder it can be a run of the original folder.
        """
        ids, same = self._experiment_ids(), f"tags.job_id = '{job_id}'"
        for mine in (f" and {self._mine}", "") if ids else ():
            for run in self.client.search_runs(ids, same + mine, ViewType.ALL, 1):
                return run_path(run.info.experiment_id, run.info.run_id)
        return None

    def views(self) -> dict[str, str]:
        """Return the path of the view of each existing experiment on the server, by its stage."""
        names = {experiment.name for experiment in self._search_experiments()}
        stages = (stage for stage in STAGES if f"{PREFIX}/{stage}" in names)
        return {stage: view_path(self.experiment(stage)) for stage in stages}

    def mark_shown(self) -> int:
        """Tag each active run of this results folder with the tables and figures that show it.

        Returns:
            The number of new tags.
        """
        missing = artifact_tags(self._own_runs(), is_database(self._uri))
        for run_id, tags in missing.items():
            self._tag(run_id, tags)
        return sum(map(len, missing.values()))

    def end_killed(self, sent: Iterable[Path]) -> None:
        """End the RUNNING runs of this results folder whose history no job is writing.

        Args:
            sent: State folders that were just sent; those of ended jobs are recorded as ended.
        """
        running = {
            run.data.tags.get(_HISTORY): run.info.run_id
            for run in self._own_runs(" and attributes.status = 'RUNNING'")
        }
        # A history exists before its run does, so histories are searched after runs.
        for path in self._root.rglob(HISTORY_FILE) if running else ():
            run_id = running.pop(header(path.parent).get(HISTORY_ID), None)
            if run_id and was_killed(path.parent):  # at the time of its last write
                self._end(run_id, int(path.stat().st_mtime * 1000))
        for run_id in running.values():  # those whose history was deleted
            self._end(run_id)
        for state in sent:
            if not is_written(state):
                replace(Sent.load(state, self._uri), ended=True).save(state, self._uri)

    def _end(self, run_id: str, at: int | None = None) -> None:
        self.client.set_tag(run_id, "resumable", "true")
        self.client.set_terminated(run_id, "KILLED", end_time=at)

    def _tag(self, run_id: str, tags: dict[str, str]) -> None:
        """Set tags in one call, since a store waits for its disk at each call."""
        self.client.log_batch(run_id, tags=[RunTag(*tag) for tag in tags.items()])

    def _search_experiments(self) -> Iterable[Experiment]:
        return self.client.search_experiments(filter_string=f"name LIKE '{PREFIX}/%'")

    def _experiment_ids(self) -> list[str]:
        return [experiment.experiment_id for experiment in self._search_experiments()]

    def _own_runs(self, condition: str = "") -> list[Run]:
        """Return all active runs of this results folder that meet a further condition."""
        ids, runs, page = self._experiment_ids(), list[Run](), None
        while ids:  # empty for a new store
            results = self.client.search_runs(ids, self._mine + condition, page_token=page)
            runs += results
            if not (page := results.token):
                break
        return runs

    def _open_run(self, job: Record, run_id: str | None) -> Run:
        """Return the run of a history, by its id or its tag, restored if deleted, or a new one."""
        experiment = self.experiment(job["stage"])
        run = self._own_run(run_id) if run_id else None
        if run is None:
            same = f"tags.`{_HISTORY}` = '{job[HISTORY_ID]}' and {self._mine}"
            run = next(iter(self.client.search_runs([experiment], same, ViewType.ALL, 1)), None)
        if run is None:
            tags = {_HISTORY: job[HISTORY_ID], _JOB: job["name"], WORKSPACE: self._workspace}
            tags |= {"job_id": job["job_id"], "mlflow.source.name": PREFIX, MLFLOW_USER: _user()}
            run = self.client.create_run(experiment, job["at"], tags, run_name=job["name"])
        if run.info.lifecycle_stage == "deleted":
            self.client.restore_run(run.info.run_id)
        return run

    def _own_run(self, run_id: str) -> Run | None:
        """Return a run; None if the store lost it or it belongs to another results folder."""
        try:
            run = self.client.get_run(run_id)
            return run if run.data.tags.get(WORKSPACE) == self._workspace else None
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None

    def _send_artifact(self, run_id: str, path: Path) -> None:
        if path.exists():
            self.client.log_artifact(run_id, str(path))
        else:
            logger.warning("tracking: artifact %s is gone, not sent", path)

    def _set_status(self, run: Run, tags: dict[str, str], job: Record, record: Record) -> None:
        """Set the status of a run; a job that finishes again keeps its first end time."""
        run_id, status, at = run.info.run_id, record["status"], record["at"]
        if status not in TERMINAL:
            self.client.update_run(run_id, status=status)
            return
        if status != "FINISHED":
            self.client.set_terminated(run_id, status, end_time=at)
            return
        self.client.set_terminated(run_id, status, end_time=record.get("first") or at)
        self._end_left_behind(run_id, tags, job, record.get("began", 0))
        self._supersede(run, at, job)

    def _supersede(self, run: Run, finished: int, job: Record) -> None:
        run_id, same = run.info.run_id, f"tags.`{_JOB}` = '{job['name']}' and {self._mine}"
        for other in self.client.search_runs([self.experiment(job["stage"])], same):
            if other.info.run_id == run_id or other.data.tags.get("job_id") == job["job_id"]:
                continue
            if _last_seen(other) <= finished:
                self._retire(other.info.run_id, job["job_id"])
            elif other.info.status == "FINISHED":
                self._retire(run_id, other.data.tags["job_id"])
                return
        for tag in {_SUPERSEDED, _CONTINUED} & run.data.tags.keys():
            self.client.delete_tag(run_id, tag)

    def _retire(self, run_id: str, successor: str) -> None:
        self.client.set_tag(run_id, _SUPERSEDED, successor)
        self.client.delete_run(run_id)

    def _end_left_behind(self, run_id: str, tags: dict[str, str], job: Record, began: int) -> None:
        """End the runs of this training that machines left RUNNING when they were lost.

        They have the same job and URL of copied checkpoints, and began before this attempt.
        Such machines share no lock: if one is still running, it corrects its status when it ends.
        """
        if COPY not in tags:
            return
        same = f"tags.`{COPY}` = '{tags[COPY]}' and tags.job_id = '{job['job_id']}'"
        running = f"{same} and attributes.status = 'RUNNING'"
        for other in self.client.search_runs([self.experiment(job["stage"])], running):
            left = other.info.run_id
            if left != run_id and other.info.start_time < began:
                self._tag(left, {_CONTINUED: run_id, "resumable": "false"})
                self.client.set_terminated(left, "KILLED", end_time=began)


def _ending_tags(record: Record) -> dict[str, str]:
    """Return the tags that a run gets with its final status."""
    if (status := record["status"]) not in TERMINAL:
        return {}
    seen = {_SEEN: str(record["at"])} if status == "FINISHED" else {}
    return {"resumable": str(status == "KILLED").lower()} | seen


def _last_seen(run: Run) -> int:
    return int(run.data.tags.get(_SEEN) or run.info.end_time or run.info.start_time or 0)


def _user() -> str:
    """Return the owner of runs on a shared server: its user, else the user of this machine."""
    with suppress(OSError, KeyError):  # a container may have no user name
        return os.environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
    return "unknown"
