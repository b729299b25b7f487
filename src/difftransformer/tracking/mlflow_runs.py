"""Histories as runs of MLflow.

Sending can be cut anywhere and repeated. A run is found again by the id of its history, a metric
point is the same point by its time, step and value, params and tags are set to what they are.

Jobs of one stage and name (``tiny/diff_v1/0``) but different fingerprints supersede each other:
when one has finished, the others get the tag ``superseded_by`` and are deleted softly, so the
default view of the UI shows what the tables use; the UI's filter "State: Deleted" shows them and
can restore them. One that finishes anew is restored. Only runs of this results folder are
continued, ended or superseded, by its id (`store.open_store`); a training that resumed from the
copy of a lost machine also ends the run that this machine left.
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
    place_of,
    place_of_run,
    show_metrics,
)

SENDING = "tracking.lock"
"""Held by one sender at a time: the job's own thread, or a later synchronisation."""
_HISTORY_ID, _JOB = f"{PREFIX}.spool", f"{PREFIX}.job"
"""Tags of a run: the id in the first line of its history, and the name of its job."""
_SEEN = f"{PREFIX}.seen"
"""When a run ended last; its end says when it ended first, if it was done again."""
_SUPERSEDED, _CONTINUED = "superseded_by", "continued_by"
"""Tags of a run that is no longer the one of its job: of other settings, or on a lost machine."""

for _name in ("mlflow", "alembic"):
    _theirs = logging.getLogger(_name)
    _theirs.setLevel(logging.WARNING)  # migrations are not our news
    _theirs.handlers.clear()  # they go where ours go, which mask secrets
    _theirs.propagate = True
logger = logging.getLogger(__name__)


class MlflowRuns:
    """The runs of a results folder in a store, which is opened, or made if it is a SQLite file.

    Args:
        uri: Address as `address.resolve_uri` returns it.
        root: The results folder; has the artifacts of a database without a server.
    """

    def __init__(self, uri: str, root: Path = ROOT) -> None:
        self._uri, self._root = uri, root
        self._experiments: dict[str, str] = {}
        self.client, self._workspace = open_store(uri, root)
        self._mine = f"tags.`{WORKSPACE}` = '{self._workspace}'"

    def experiment(self, stage: str) -> str:
        """Return the id of a stage's experiment, made if missing."""
        if stage not in self._experiments:
            location, owned = None, dict[str, str]()
            if is_database(self._uri):
                location, owned = artifact_location(self._root), {WORKSPACE: self._workspace}
            name = f"{PREFIX}/{stage}"
            self._experiments[stage] = find_or_create(self.client, name, stage, location, owned)
        return self._experiments[stage]

    def send(self, state: Path) -> None:
        """Send what is new in the history in ``state``.

        Raises:
            DataError: the history does not begin with the job that it is of.
            Exception: anything the store answers; all of it is sent again the next time.
        """
        with locked(state / SENDING):
            job, sent = header(state), Sent.load(state, self._uri)
            if not job or sent.offset >= (state / HISTORY_FILE).stat().st_size:
                return
            if job["kind"] != "job":
                raise DataError(
                    f"{state / HISTORY_FILE}: its first line is damaged, so that nobody knows "
                    "whose it is; delete it to go on without"
                )
            run = self._open_run(job, sent.run_id)
            run_id = run.info.run_id
            news, end = read_records(state, sent.offset if run_id == sent.run_id else 0)
            metrics, artifacts, status = list[Metric](), list[str](), None
            texts: dict[str, dict[str, str]] = {"params": {}, "tags": {}}
            for record in news:
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
        """Return where a server shows the run of a job, after its address; None: it has none.

        In a copy of a results folder, a run of the folder that it was copied from.
        """
        ids, same = self._experiment_ids(), f"tags.job_id = '{job_id}'"
        for mine in (f" and {self._mine}", "") if ids else ():
            for run in self.client.search_runs(ids, same + mine, ViewType.ALL, 1):
                return place_of_run(run.info.experiment_id, run.info.run_id)
        return None

    def views(self) -> dict[str, str]:
        """Return what to open of each experiment, after the address of MLflow, by its stage."""
        there = {one.name.removeprefix(f"{PREFIX}/") for one in self._search_experiments()}
        return {stage: place_of(self.experiment(stage)) for stage in STAGES if stage in there}

    def mark_shown(self) -> int:
        """Tag each run of this results folder with the tables and figures that show it.

        See `artifact_tags`; looks at the runs that the UI shows. Returns how many tags it set.
        """
        missing = artifact_tags(self._own_runs(), is_database(self._uri))
        for run_id, tags in missing.items():
            self._tag(run_id, tags)
        return sum(map(len, missing.values()))

    def end_killed(self, sent: Iterable[Path]) -> None:
        """End the runs of this results folder that are RUNNING though no job writes their history.

        Args:
            sent: State folders; what is known of each in the store is written down.
        """
        running = {
            run.data.tags.get(_HISTORY_ID): run.info.run_id
            for run in self._own_runs(" and attributes.status = 'RUNNING'")
        }
        # A run has its history before the store has the run: so the histories are searched last.
        for path in self._root.rglob(HISTORY_FILE) if running else ():
            run_id = running.pop(header(path.parent).get("spool"), None)
            if run_id and was_killed(path.parent):  # it ended when it last wrote something
                self._end(run_id, int(path.stat().st_mtime * 1000))
        for run_id in running.values():  # its history was deleted
            self._end(run_id)
        for state in sent:
            if not is_written(state):
                replace(Sent.load(state, self._uri), ended=True).save(state, self._uri)

    def _end(self, run_id: str, at: int | None = None) -> None:
        self.client.set_tag(run_id, "resumable", "true")
        self.client.set_terminated(run_id, "KILLED", end_time=at)

    def _tag(self, run_id: str, tags: dict[str, str]) -> None:
        """Set tags in one call: a store waits for its disk at each."""
        self.client.log_batch(run_id, tags=[RunTag(*tag) for tag in tags.items()])

    def _search_experiments(self) -> Iterable[Experiment]:
        return self.client.search_experiments(filter_string=f"name LIKE '{PREFIX}/%'")

    def _experiment_ids(self) -> list[str]:
        return [experiment.experiment_id for experiment in self._search_experiments()]

    def _own_runs(self, more: str = "") -> list[Run]:
        """Return all active runs of this results folder that meet a condition."""
        ids, runs, page = self._experiment_ids(), list[Run](), None
        while ids:  # there are none on a fresh store
            found = self.client.search_runs(ids, self._mine + more, page_token=page)
            runs += found
            if not (page := found.token):
                break
        return runs

    def _open_run(self, job: Record, run_id: str | None) -> Run:
        """Return the run of a history: known, found by its tag, or created; active in any case."""
        experiment = self.experiment(job["stage"])
        found = self._own_run(run_id) if run_id else None
        if found is None:
            same = f"tags.`{_HISTORY_ID}` = '{job['spool']}' and {self._mine}"
            found = next(iter(self.client.search_runs([experiment], same, ViewType.ALL, 1)), None)
        if found is None:
            tags = {_HISTORY_ID: job["spool"], _JOB: job["name"], WORKSPACE: self._workspace}
            tags |= {"job_id": job["job_id"], "mlflow.source.name": PREFIX, MLFLOW_USER: _user()}
            found = self.client.create_run(experiment, job["at"], tags, run_name=job["name"])
        if found.info.lifecycle_stage == "deleted":
            self.client.restore_run(found.info.run_id)
        return found

    def _own_run(self, run_id: str) -> Run | None:
        """Return a run; None where the store lost it, or it is of another results folder."""
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
        """Pass a status on; a job that is done again keeps its end, and gets no longer."""
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

        They have the same job and copy of its state, and began before this attempt. No lock keeps
        such machines apart: if one still runs, it corrects this when it ends.
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
    """Return the tags that go with a status."""
    if (status := record["status"]) not in TERMINAL:
        return {}
    seen = {_SEEN: str(record["at"])} if status == "FINISHED" else {}
    return {"resumable": str(status == "KILLED").lower()} | seen


def _last_seen(run: Run) -> int:
    return int(run.data.tags.get(_SEEN) or run.info.end_time or run.info.start_time or 0)


def _user() -> str:
    """Return whose runs these are on a shared server: who logs in there, else here."""
    with suppress(OSError, KeyError):  # a container may know no name
        return os.environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
    return "unknown"
