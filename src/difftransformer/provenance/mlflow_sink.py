"""Journals into MLflow: with its batches and their store the only importer of mlflow.

Sending can be cut anywhere and repeated. A run is found again by the id of its journal, a metric
point is the same point by its time, step and value, params and tags are set to what they are.

Jobs of one stage and name (``tiny/diff_v1/0``) but different fingerprints supersede each other:
when one has finished, the others get the tag ``superseded_by`` and are deleted softly, so the
default view of the UI shows what the tables use; the UI's filter "State: Deleted" shows them and
can restore them. One that finishes anew is restored. Only runs of this results folder are
continued, ended or superseded, by a workspace id kept in ``results/mlflow/workspace``.

A training that went on from the copy of a machine that was lost is a run of its own. When it has
finished, it ends the run that stayed behind, which no process of that machine can end any more.
"""

from __future__ import annotations

import getpass
import logging
import os
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

from mlflow.entities import Experiment, Run, RunTag, ViewType  # noqa: E402
from mlflow.exceptions import MlflowException  # noqa: E402
from mlflow.utils.mlflow_tags import MLFLOW_USER  # noqa: E402

from difftransformer.errors import DataError  # noqa: E402
from difftransformer.machine.locks import locked  # noqa: E402
from difftransformer.provenance.mlflow_batch import Batch  # noqa: E402
from difftransformer.provenance.mlflow_experiments import find_or_create, show_metrics  # noqa: E402
from difftransformer.provenance.mlflow_links import artifact_tags  # noqa: E402
from difftransformer.provenance.mlflow_store import PREFIX, WORKSPACE, artifact_location, open_store  # noqa: E402
from difftransformer.provenance.mlflow_views import STAGES, place_of, place_of_run  # noqa: E402
from difftransformer.provenance.spool import (  # noqa: E402
    COPY,
    JOURNAL,
    KEY_METRIC,
    SENDING,
    TERMINAL,
    Record,
    Sent,
    first_finish,
    is_database,
    is_written,
    last_sign,
    last_start,
    read_records,
    statuses,
)

_SPOOL, _JOB = f"{PREFIX}.spool", f"{PREFIX}.job"
_SEEN = f"{PREFIX}.seen"
"""When a run ended last; its end says when it ended first, if it was done again."""
_CONTINUED = "continued_by"
"""Tag of a run that a lost machine left behind: the run that went on."""

for _name in ("mlflow", "alembic"):
    _theirs = logging.getLogger(_name)
    _theirs.setLevel(logging.WARNING)  # migrations are not our news
    _theirs.handlers.clear()  # they go where ours go, which mask secrets
    _theirs.propagate = True
logger = logging.getLogger(__name__)


class MlflowSink:
    """A store, opened; for SQLite the database is made first if it is not there.

    Its address is that of `tracking.resolve_uri`. Of a database without a server before it the
    artifacts lie in the results folder, ``root/mlflow/artifacts``.
    """

    def __init__(self, uri: str, root: Path = Path("results")) -> None:
        self._uri, self._root = uri, root
        self._experiments: dict[str, str] = {}
        self._shown: set[tuple[str, str]] = set()
        self.client, self._workspace = open_store(uri, root)
        self._mine = f"tags.`{WORKSPACE}` = '{self._workspace}'"

    def experiment(self, stage: str) -> str:
        """Id of the experiment of a stage, made if missing."""
        if stage not in self._experiments:
            location, owned = None, dict[str, str]()
            if is_database(self._uri):
                location, owned = artifact_location(self._root), {WORKSPACE: self._workspace}
            name = f"{PREFIX}/{stage}"
            self._experiments[stage] = find_or_create(self.client, name, stage, location, owned)
        return self._experiments[stage]

    def send(self, state: Path) -> int:
        """Send what is new in the journal of ``state``; returns the number of records sent.

        Raises:
            DataError: the journal does not begin with the job that it is of.
            Exception: anything the store answers; what arrived before stays recorded as sent.
        """
        with locked(state / SENDING):
            journal = state / JOURNAL
            sent = Sent.load(state, self._uri)
            job = next((record for record, _ in read_records(journal)), None)
            if job is None or sent.offset >= journal.stat().st_size:
                return 0
            if job["kind"] != "job":
                raise DataError(
                    f"{journal}: its first line is damaged, so that nobody knows whose it is; "
                    "delete it to go on without"
                )
            run_id = self._open_run(job, sent.run_id)
            start = sent.offset if run_id == sent.run_id else 0
            count, batch = 0, Batch()
            for record, offset in read_records(journal, start):
                if not batch.takes(record):
                    self._write(run_id, batch, state, job)
                    batch = Batch()
                batch.add(record, offset)
                count += 1
            if count:
                self._write(run_id, batch, state, job)
            return count

    def find(self, job_id: str) -> str | None:
        """Return where a server shows the run of a job, behind its address; None: it has none.

        In a copy of a results folder, a run of the folder that it was copied from.
        """
        ids, same = self._experiment_ids(), f"tags.job_id = '{job_id}'"
        for mine in (f" and {self._mine}", "") if ids else ():
            for run in self.client.search_runs(ids, same + mine, ViewType.ALL, 1):
                return place_of_run(run.info.experiment_id, run.info.run_id)
        return None

    def views(self) -> dict[str, str]:
        """Give what to open of each experiment, behind the address of MLflow, by its stage."""
        there = {one.name.removeprefix(f"{PREFIX}/") for one in self._there()}
        return {stage: place_of(self.experiment(stage)) for stage in STAGES if stage in there}

    def mark_shown(self) -> int:
        """Tag each run of this results folder with the tables and figures that it is behind.

        See `artifact_tags`; looks at the runs that the UI shows. Returns how many tags it set.
        """
        marks = artifact_tags(self._own_runs(), is_database(self._uri))
        for run_id, tags in marks.items():
            self._tag(run_id, tags)
        return sum(map(len, marks.values()))

    def _tag(self, run_id: str, tags: dict[str, str]) -> None:
        """Set tags at one go: a store waits for its disk at each."""
        self.client.log_batch(run_id, tags=[RunTag(*tag) for tag in tags.items()])

    def _there(self) -> list[Experiment]:
        """Give the experiments of all stages that have one."""
        return list(self.client.search_experiments(filter_string=f"name LIKE '{PREFIX}/%'"))

    def _experiment_ids(self) -> list[str]:
        return [experiment.experiment_id for experiment in self._there()]

    def _own_runs(self, more: str = "") -> list[Run]:
        """Give all active runs of this results folder that meet a condition."""
        ids, runs, page = self._experiment_ids(), list[Run](), None
        while ids:  # there are none on a fresh store
            found = self.client.search_runs(ids, self._mine + more, page_token=page)
            runs += found
            if not (page := found.token):
                break
        return runs

    def close_stale(self, living: set[str]) -> int:
        """End the runs of this results folder that no job of ``living`` (journal ids) holds.

        Returns how many there were.
        """
        running = self._own_runs(" and attributes.status = 'RUNNING'")
        stale = [run.info.run_id for run in running if run.data.tags.get(_SPOOL) not in living]
        for run_id in stale:
            self._end_killed(run_id)
        return len(stale)

    def mark_dead(self, state: Path) -> None:
        """End the run of a job that was killed without a word."""
        sent = Sent.load(state, self._uri)
        said = statuses(state)
        if sent.run_id is None or not said or said[-1] in TERMINAL or is_written(state):
            return
        run = self._own_run(sent.run_id)
        if run is not None and run.info.status == "RUNNING":
            self._end_killed(sent.run_id, last_sign(state))
        replace(sent, ended=True).save(state, self._uri)

    def _end_killed(self, run_id: str, at: int | None = None) -> None:
        """End a run ``at`` its last sign of life, not when somebody noticed."""
        self.client.set_tag(run_id, "resumable", "true")
        self.client.set_terminated(run_id, "KILLED", end_time=at)

    def _write(self, run_id: str, batch: Batch, state: Path, job: Record) -> None:
        if batch.metrics or batch.params or batch.tags:
            self.client.log_batch(run_id, batch.metrics, batch.params, batch.tags)
        for tag in batch.tags:
            if tag.key == KEY_METRIC and (job["stage"], tag.value) not in self._shown:
                experiment = self.experiment(job["stage"])
                show_metrics(self.client, experiment, job["stage"], [tag.value])
                self._shown.add((job["stage"], tag.value))
        if batch.artifact is not None:
            path = Path(os.path.normpath(state / batch.artifact))
            if path.exists():
                self.client.log_artifact(run_id, str(path))
            else:
                logger.warning("tracking: artifact %s is gone, not sent", path)
        if batch.status is not None:
            self._set_status(run_id, batch.status, job, state)
        Sent(run_id, batch.offset).save(state, self._uri)

    def _set_status(self, run_id: str, record: Record, job: Record, state: Path) -> None:
        """Pass a status on; a job that is done again keeps its time and gets no longer."""
        status = record["status"]
        if status not in TERMINAL:
            self.client.update_run(run_id, status=status)
            return
        tags = {"resumable": str(status == "KILLED").lower()}
        if status == "FINISHED":
            tags[_SEEN] = str(record["at"])
        self._tag(run_id, tags)
        first = first_finish(state) if status == "FINISHED" else None
        self.client.set_terminated(run_id, status, end_time=first or record["at"])
        if status == "FINISHED":
            self._end_those_left_behind(run_id, job, last_start(state, record["at"]))
            self._supersede(run_id, record["at"], job)

    def _open_run(self, job: Record, run_id: str | None) -> str:
        """Give the run of a journal: known, found by its tag, or created; active in any case."""
        experiment = self.experiment(job["stage"])
        found = self._own_run(run_id) if run_id else None
        if found is None:
            spool = f"tags.`{_SPOOL}` = '{job['spool']}' and {self._mine}"
            found = next(iter(self.client.search_runs([experiment], spool, ViewType.ALL, 1)), None)
        if found is None:
            tags = {_SPOOL: job["spool"], _JOB: job["name"], WORKSPACE: self._workspace}
            tags |= {"job_id": job["job_id"], "mlflow.source.name": PREFIX, MLFLOW_USER: _user()}
            found = self.client.create_run(experiment, job["at"], tags, run_name=job["name"])
        if found.info.lifecycle_stage == "deleted":
            self.client.restore_run(found.info.run_id)
        return str(found.info.run_id)

    def _own_run(self, run_id: str) -> Run | None:
        """Give a run; None where the store does not have it any more, or it is another folder's."""
        try:
            run = self.client.get_run(run_id)
            return run if run.data.tags.get(WORKSPACE) == self._workspace else None
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None

    def _supersede(self, run_id: str, finished: int, job: Record) -> None:
        same = f"tags.`{_JOB}` = '{job['name']}' and {self._mine}"
        runs = self.client.search_runs([self.experiment(job["stage"])], same)
        for other in runs:
            if other.info.run_id == run_id or other.data.tags.get("job_id") == job["job_id"]:
                continue
            if _last_seen(other) <= finished:
                self._retire(other.info.run_id, job["job_id"])
            elif other.info.status == "FINISHED":
                self._retire(run_id, other.data.tags["job_id"])
                return
        if "superseded_by" in self.client.get_run(run_id).data.tags:
            self.client.delete_tag(run_id, "superseded_by")

    def _end_those_left_behind(self, run_id: str, job: Record, began: int) -> None:
        """End the runs of this training that machines left RUNNING when they were lost.

        They have the same job and copy of its state, and no point since this attempt ``began``.
        No lock keeps such machines apart: should one live and be silent, it corrects this when it
        ends.
        """
        tags = self.client.get_run(run_id).data.tags
        if _CONTINUED in tags:
            self.client.delete_tag(run_id, _CONTINUED)
        if COPY not in tags:
            return
        same = f"tags.`{COPY}` = '{tags[COPY]}' and tags.job_id = '{job['job_id']}'"
        running = f"{same} and attributes.status = 'RUNNING'"
        for other in self.client.search_runs([self.experiment(job["stage"])], running):
            left, seen = other.info.run_id, self._last_point(other)
            if left != run_id and seen < began:
                self._tag(left, {_CONTINUED: run_id, "resumable": "false"})
                self.client.set_terminated(left, "KILLED", end_time=seen)

    def _last_point(self, run: Run) -> int:
        """When the last point of a run was made; where it has none, when it began.

        It reads all points, since MLflow says no time of the latest ones.
        """
        histories = (
            self.client.get_metric_history(run.info.run_id, name) for name in run.data.metrics
        )
        times = (point.timestamp for history in histories for point in history)
        return int(max(times, default=run.info.start_time))

    def _retire(self, run_id: str, successor: str) -> None:
        self.client.set_tag(run_id, "superseded_by", successor)
        self.client.delete_run(run_id)


def _user() -> str:
    """Whose runs these are on a server of several: who logs in there, else here."""
    with suppress(OSError, KeyError):  # a container may know no name
        return os.environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
    return "unknown"


def _last_seen(run: Run) -> int:
    return int(run.data.tags.get(_SEEN) or run.info.end_time or run.info.start_time or 0)
