"""Sending of histories to MLflow as runs.

Sending can be interrupted at any point and repeated. A run is found by the id of its history.
MLflow stores points with the same time, step and value once, and params and tags are set again.

Jobs with the same stage and name (``tiny/diff_v1/0``) but different fingerprints supersede each
other. The run of the job that finished last stays. The other runs get the tag ``superseded_by`` and
are deleted softly. So MLflow shows the runs that tables use, and the others under "State: Deleted".
A job that is sent again restores its run. Only runs with the id of this results folder are changed
(`store.open_store`). The exception is the run of a lost machine, if a training resumed from the
machine's copied checkpoint.
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
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # this package retries later
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # the URL may contain a password
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
"""Name of the lock file that one sender holds at a time: the job's thread or a synchronization."""
_HISTORY, _JOB = f"{PREFIX}.{HISTORY_ID}", f"{PREFIX}.job"
"""Tags of a run with the id of its history and the name of its job."""
_SEEN = f"{PREFIX}.seen"
"""Tag of a run with the time of the job's last finish; the run's end time is the first finish."""
_SUPERSEDED, _CONTINUED = "superseded_by", "continued_by"
"""Tags of a run that another run of its job replaces. The other run has different settings, or it
belongs to a training that resumed on another machine after the first machine was lost."""

for _name in ("mlflow", "alembic"):
    _library = logging.getLogger(_name)
    _library.setLevel(logging.WARNING)  # hides messages of migrations
    _library.handlers.clear()  # the root logger's handlers mask secrets
    _library.propagate = True
logger = logging.getLogger(__name__)


class MlflowRuns:
    """The MLflow runs of a results folder in an MLflow store; a missing SQLite file is created.

    Args:
        uri: Address of the store, from `address.resolve_uri`.
        root: The results folder, which contains the artifacts of a database without a server.
    """

    def __init__(self, uri: str, root: Path = ROOT) -> None:
        self._uri, self._root = uri, root
        self._experiments: dict[str, str] = {}
        self.client, self._workspace = open_store(uri, root)
        self._mine = f"tags.`{WORKSPACE}` = '{self._workspace}'"

    def experiment(self, stage: str) -> str:
        """Return the id of the MLflow experiment of a stage (rule), created if missing."""
        if stage not in self._experiments:
            name = f"{PREFIX}/{stage}"
            experiment = self.client.get_experiment_by_name(name)
            experiment = experiment or self._create_experiment(name, stage)
            self._show(experiment, ())
            self._experiments[stage] = experiment.experiment_id
        return self._experiments[stage]

    def send(self, state: Path) -> None:
        """Send new records of the history in the folder ``state``, and end the run of a killed job.

        Raises:
            DataError: The first line of the history is damaged.
            Exception: Any error of the store; the same records are sent again the next time.
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
                ):  # sent already, by the folder of which this one is a copy
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
        """Return the path of a job's run in MLflow's web interface, or None if there is no run.

        In a copy of a results folder, the run may belong to the original folder.
        """
        ids, condition = list(self._search_experiments()), f"tags.job_id = '{job_id}'"
        for mine in (f" and {self._mine}", "") if ids else ():
            for run in self.client.search_runs(ids, condition + mine, ViewType.ALL, 1):
                return run_path(run.info.experiment_id, run.info.run_id)
        return None

    def views(self) -> dict[str, str]:
        """Return the path of each experiment's view in MLflow's web interface, by stage."""
        names = {experiment.name for experiment in self._search_experiments().values()}
        stages = (stage for stage in STAGES if f"{PREFIX}/{stage}" in names)
        return {stage: view_path(self.experiment(stage)) for stage in stages}

    def tidy(self) -> None:
        """Update the active MLflow runs of this results folder after histories were sent.

        Runs whose history was deleted are ended. Superseded runs are deleted softly. Key metrics
        become columns. Runs get tags with the names of the tables and figures that show them.
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
        except MlflowException:  # another process has created it meanwhile
            if (experiment := self.client.get_experiment_by_name(name)) is None:
                raise
            return experiment

    def _end_orphaned(self, active: list[Run]) -> None:
        # A history is created before its run, so search runs first, then histories.
        ids = {header(path.parent).get(HISTORY_ID) for path in self._root.rglob(HISTORY_FILE)}
        for run in active:
            if run.info.status == "RUNNING" and run.data.tags.get(_HISTORY) not in ids:
                self.client.set_tag(run.info.run_id, "resumable", "true")
                self.client.set_terminated(run.info.run_id, "KILLED")

    def _supersede(self, active: list[Run]) -> list[Run]:
        """Delete runs of jobs that finished later with other settings; return the other runs."""
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
        """Log tags, params and metrics in one call, since each call waits for the store's disk."""
        settings = [Param(*item) for item in (params or {}).items()]
        self.client.log_batch(run_id, metrics, settings, [RunTag(*tag) for tag in tags.items()])

    def _search_experiments(self) -> dict[str, Experiment]:
        """Return the MLflow experiments of this package by their ids."""
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
        """Return the run of a history, restored if it was softly deleted, or None."""
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
        """End the runs of this training that are RUNNING although their machines were lost.

        Such runs have the same job and the same URL of copied checkpoints, and began before this
        attempt. Their machines share no lock. A machine that still runs corrects its status at its
        end.
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
    """Return the owner of runs on a shared server: the server's user, or else the local user."""
    with suppress(OSError, KeyError):  # a container may have no user name
        return os.environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
    return "unknown"
