"""Histories as runs of MLflow.

Sending can be interrupted anywhere and repeated: a run is found by the id of its history, MLflow
stores a point of the same time, step and value once, and params and tags are set again.

Jobs of one stage and name (``tiny/diff_v1/0``) but different fingerprints supersede each other: the
last that finished stays, the others get the tag ``superseded_by`` and are deleted softly, so the UI
shows the runs that tables use, and the others under "State: Deleted". A job that is sent again
restores its run. Only runs of this results folder are changed, by its id (`store.open_store`),
except the one of a lost machine from whose copied checkpoint a training resumed.
"""

from __future__ import annotations

import getpass
import logging
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
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
from difftransformer.provenance.layout import tracking_store  # noqa: E402
from difftransformer.tracking.address import ROOT, is_database  # noqa: E402
from difftransformer.tracking.history import (  # noqa: E402
    COPY,
    HISTORY_FILE,
    HISTORY_ID,
    KEY_METRIC,
    TERMINAL,
    Record,
    Sent,
    complete_size,
    header,
    is_running,
    read_records,
)
from difftransformer.tracking.store import PREFIX, WORKSPACE, artifact_location, open_store  # noqa: E402
from difftransformer.tracking.views import (  # noqa: E402
    STAGES,
    artifact_tags,
    experiment_tags,
    run_path,
    view_path,
)

SENDING = "tracking.lock"
"""Held by one sender at a time: the job's own thread, or a later synchronization."""
_HISTORY, _JOB = f"{PREFIX}.{HISTORY_ID}", f"{PREFIX}.job"
"""Tags of a run: the id of its history, and the name of its job."""
_SEEN = f"{PREFIX}.seen"
"""Tag of a run: when its job last finished; its end time is when the job first finished."""
_SUPERSEDED, _CONTINUED = "superseded_by", "continued_by"
"""Tags of a run that another run of its job replaces: one of other settings, or of a training that
resumed after its machine was lost."""

for _name in ("mlflow", "alembic"):
    _library = logging.getLogger(_name)
    _library.setLevel(logging.WARNING)  # hides messages of migrations
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
            name = f"{PREFIX}/{stage}"
            experiment = self.client.get_experiment_by_name(name)
            experiment = experiment or self._create_experiment(name, stage)
            self._show(experiment, ())
            self._experiments[stage] = experiment.experiment_id
        return self._experiments[stage]

    def send(self, state: Path) -> None:
        """Send the new records of the history in ``state``, and end the run of a killed job.

        Raises:
            DataError: the first line of the history is damaged.
            Exception: any error of the store; the same records are sent again the next time.
        """
        with locked(state / SENDING):
            job, sent = header(state), Sent.load(state, self._uri)
            if not sent.is_behind(state):
                return
            if job["kind"] != "job":
                raise DataError(
                    f"{state / HISTORY_FILE}: its first line is damaged, so its run is unknown; "
                    "delete the file to continue without it"
                )
            if (run := self._find_run(job)) is None:
                if sent.offset >= complete_size(
                    state
                ):  # sent by the folder this one was copied from
                    replace(sent, ended=True).save(state, self._uri)
                    return
                run = self._create_run(job)
            running, run_id = is_running(state), run.info.run_id
            records, end = read_records(state, sent.offset if run_id == sent.run_id else 0)
            by_kind: dict[str, list[Record]] = defaultdict(list)
            for record in records:
                by_kind[record["kind"]].append(record)
            params, tags = (
                {name: text for record in by_kind[kind] for name, text in record["values"].items()}
                for kind in ("params", "tags")
            )
            metrics = [
                Metric(name, value, record["at"], record["step"])
                for record in by_kind["metrics"]
                for name, value in record["values"].items()
            ]
            status = by_kind["status"][-1] if by_kind["status"] else {}
            if not running and status.get("status") not in TERMINAL:  # it was killed
                at = int((state / HISTORY_FILE).stat().st_mtime * 1000)
                status = {"status": "KILLED", "at": at}
            tags |= _ending_tags(status)
            self._log(run_id, tags, params, metrics)
            for name in dict.fromkeys(record["path"] for record in by_kind["artifact"]):
                self._send_artifact(run_id, state / name)
            if status:
                self._set_status(run, run.data.tags | tags, job, status)
            Sent(run_id, end, status.get("status") in TERMINAL).save(state, self._uri)

    def find(self, job_id: str) -> str | None:
        """Return the path of a job's run on the server, or None without one.

        In a copy of a results folder it can be a run of the original folder.
        """
        ids, condition = list(self._search_experiments()), f"tags.job_id = '{job_id}'"
        for mine in (f" and {self._mine}", "") if ids else ():
            for run in self.client.search_runs(ids, condition + mine, ViewType.ALL, 1):
                return run_path(run.info.experiment_id, run.info.run_id)
        return None

    def views(self) -> dict[str, str]:
        """Return the path of the view of each existing experiment on the server, by its stage."""
        names = {experiment.name for experiment in self._search_experiments().values()}
        stages = (stage for stage in STAGES if f"{PREFIX}/{stage}" in names)
        return {stage: view_path(self.experiment(stage)) for stage in stages}

    def tidy(self) -> None:
        """Update the active runs of this results folder after histories were sent.

        Runs whose history was deleted are ended, superseded ones are deleted softly, key metrics
        become columns, and runs get the names of the tables and figures that show them.
        """
        with locked(
            tracking_store(self._root) / "lock"
        ):  # no other process supersedes the same runs
            experiments = self._search_experiments()
            active = self._own_runs(list(experiments))
            self._end_orphaned(active)
            active = self._supersede(active)
            for key, experiment in experiments.items():
                runs = (run for run in active if run.info.experiment_id == key)
                self._show(experiment, {run.data.tags.get(KEY_METRIC, "") for run in runs} - {""})
            for run_id, tags in artifact_tags(active, is_database(self._uri)).items():
                self._log(run_id, tags)

    def _create_experiment(self, name: str, stage: str) -> Experiment:
        location, tags = None, experiment_tags(stage)
        if is_database(self._uri):
            location, tags[WORKSPACE] = artifact_location(self._root), self._workspace
        try:
            return self.client.get_experiment(self.client.create_experiment(name, location, tags))
        except MlflowException:  # another process was faster
            if (experiment := self.client.get_experiment_by_name(name)) is None:
                raise
            return experiment

    def _end_orphaned(self, active: list[Run]) -> None:
        # A history exists before its run does, so histories are searched after runs.
        ids = {header(path.parent).get(HISTORY_ID) for path in self._root.rglob(HISTORY_FILE)}
        for run in active:
            if run.info.status == "RUNNING" and run.data.tags.get(_HISTORY) not in ids:
                self.client.set_tag(run.info.run_id, "resumable", "true")
                self.client.set_terminated(run.info.run_id, "KILLED")

    def _supersede(self, active: list[Run]) -> list[Run]:
        """Delete runs of jobs that finished later with other settings; return the others."""
        last, remaining = dict[tuple[str, str], Run](), list[Run]()
        for run in sorted(active, key=_last_seen):
            if run.info.status == "FINISHED":
                last[_job_key(run)] = run
        for run in active:
            newest = last.get(_job_key(run), run)
            successor = newest.data.tags["job_id"]
            if run.data.tags["job_id"] == successor or _last_seen(run) > _last_seen(newest):
                remaining.append(run)
            else:
                self.client.set_tag(run.info.run_id, _SUPERSEDED, successor)
                self.client.delete_run(run.info.run_id)
        for run in last.values():
            for tag in {_SUPERSEDED, _CONTINUED} & run.data.tags.keys():
                self.client.delete_tag(run.info.run_id, tag)
        return remaining

    def _show(self, experiment: Experiment, key_metrics: Iterable[str]) -> None:
        """Add metrics to the columns of an experiment, and update its other tags."""
        stage = experiment.name.removeprefix(f"{PREFIX}/")
        for tag, value in experiment_tags(stage, experiment.tags, key_metrics).items():
            self.client.set_experiment_tag(experiment.experiment_id, tag, value)

    def _log(
        self,
        run_id: str,
        tags: dict[str, str],
        params: dict[str, str] | None = None,
        metrics: Sequence[Metric] = (),
    ) -> None:
        """Log all in one call, since a store waits for its disk at each call."""
        settings = [Param(*item) for item in (params or {}).items()]
        self.client.log_batch(run_id, metrics, settings, [RunTag(*tag) for tag in tags.items()])

    def _search_experiments(self) -> dict[str, Experiment]:
        """Return the experiments of this package by their ids."""
        experiments = self.client.search_experiments(filter_string=f"name LIKE '{PREFIX}/%'")
        return {experiment.experiment_id: experiment for experiment in experiments}

    def _own_runs(self, experiments: list[str]) -> list[Run]:
        """Return all active runs of this results folder."""
        runs, page = list[Run](), None
        while experiments:  # empty for a new store
            results = self.client.search_runs(experiments, self._mine, page_token=page)
            runs += results
            if not (page := results.token):
                break
        return runs

    def _find_run(self, job: Record) -> Run | None:
        """Return the run of a history, restored if it was deleted softly."""
        condition = f"tags.`{_HISTORY}` = '{job[HISTORY_ID]}' and {self._mine}"
        experiments = [self.experiment(job["stage"])]
        for run in self.client.search_runs(experiments, condition, ViewType.ALL, 1):
            if run.info.lifecycle_stage == "deleted":
                self.client.restore_run(run.info.run_id)
            return run
        return None

    def _create_run(self, job: Record) -> Run:
        tags = {_HISTORY: job[HISTORY_ID], _JOB: job["name"], WORKSPACE: self._workspace}
        tags |= {"job_id": job["job_id"], "mlflow.source.name": PREFIX, MLFLOW_USER: _user()}
        experiment = self.experiment(job["stage"])
        return self.client.create_run(experiment, job["at"], tags, run_name=job["name"])

    def _send_artifact(self, run_id: str, path: Path) -> None:
        if path.exists():
            self.client.log_artifact(run_id, str(path))
        else:
            logger.warning("tracking: artifact %s is gone, not sent", path)

    def _set_status(self, run: Run, tags: dict[str, str], job: Record, record: Record) -> None:
        """Set the status of a run; a job that finishes again keeps its first end time."""
        run_id, status = run.info.run_id, record["status"]
        if status not in TERMINAL:
            self.client.update_run(run_id, status=status)
            return
        first = record.get("first") if status == "FINISHED" else None
        self.client.set_terminated(run_id, status, end_time=first or record["at"])
        if status == "FINISHED" and COPY in tags:
            self._end_lost_runs(run_id, tags[COPY], job, record.get("began", 0))

    def _end_lost_runs(self, run_id: str, copy: str, job: Record, began: int) -> None:
        """End the runs of this training that machines left RUNNING when they were lost.

        They have the same job and URL of copied checkpoints, and began before this attempt.
        Such machines share no lock: if one is still running, it corrects its status when it ends.
        """
        condition = f"tags.`{COPY}` = '{copy}' and tags.job_id = '{job['job_id']}'"
        condition += " and attributes.status = 'RUNNING'"
        for run in self.client.search_runs([self.experiment(job["stage"])], condition):
            lost_id = run.info.run_id
            if lost_id != run_id and run.info.start_time < began:
                self._log(lost_id, {_CONTINUED: run_id, "resumable": "false"})
                self.client.set_terminated(lost_id, "KILLED", end_time=began)


def _ending_tags(record: Record) -> dict[str, str]:
    """Return the tags that a run gets with its final status."""
    if (status := record.get("status")) not in TERMINAL:
        return {}
    seen = {_SEEN: str(record["at"])} if status == "FINISHED" else {}
    return {"resumable": str(status == "KILLED").lower()} | seen


def _job_key(run: Run) -> tuple[str, str]:
    return run.info.experiment_id, run.data.tags[_JOB]


def _last_seen(run: Run) -> int:
    return int(run.data.tags.get(_SEEN) or run.info.end_time or run.info.start_time or 0)


def _user() -> str:
    """Return the owner of runs on a shared server: its user, else the user of this machine."""
    with suppress(OSError, KeyError):  # a container may have no user name
        return os.environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
    return "unknown"
