"""What a job tells about itself while it runs, local first.

A `SpoolTracker` writes params, tags, metric points and artifacts into the job's journal (`spool`)
and never waits for a server. Sending is done by

* `difftransformer sync_tracking`, once at the end of a workflow or by hand: one process sends
  everything with one import of mlflow (4 s of CPU, which a job of seconds must not pay);
* a background thread of a job that has run for ``live_after`` seconds, from then on, and of every
  job at its end where its disk goes with it.

Points carry the time they were made, so what is sent twice after a crash is the same point, which
the store keeps once. A training job flushes every half minute and *before* it writes a checkpoint.
When it resumes, it makes the points behind its checkpoint again, all of them where it had none; the
journal knows them and keeps the first.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from difftransformer.errors import ConfigError
from difftransformer.provenance.journal import Delivery, Sender, SpoolTracker, disk_passes
from difftransformer.provenance.layout import tracking_store
from difftransformer.provenance.masking import displayed, has_secret

OFF = "off"
ROOT = Path("results")
_VARIABLE = "MLFLOW_TRACKING_URI"
logger = logging.getLogger(__name__)

_SCHEMES = ("sqlite", "postgresql", "mysql", "mssql", "http", "https", "databricks")


class NullTracker:
    """Tracking switched off: the same methods, doing nothing."""

    def __init__(self, job_id: str = "") -> None:
        self.job_id = job_id

    def _nothing(self, *_args: Any, **_named: Any) -> None:
        """Do nothing."""

    log_params = log_metrics = log_artifact = set_tags = rewind = flush = close = _nothing


Tracker = SpoolTracker | NullTracker
"""Where a job reports to."""


@contextmanager
def start_job(
    stage: str,
    name: str,
    job_id: str,
    state: Path,
    params: Mapping[str, Any],
    tags: Mapping[str, Any],
    uri: str | None = None,
    delivery: Delivery | None = None,
) -> Iterator[Tracker]:
    """Track one job; the end of the block decides its status.

    Args:
        stage: Names the experiment: "tokenize", "pretrain", "evaluate", "table", ...
        name: The job among all of its stage, *without* its fingerprint, such as
            ``tiny/diff_v1/0``: jobs of one name supersede each other.
        job_id: See `difftransformer.provenance.result.job_id`.
        state: Folder that belongs to this job and fingerprint alone; a job that finds a journal
            there continues its MLflow run.
        params: Resolved settings, may be nested.
        tags: Labels: rule, scale, run, seed, suite, fingerprint, commit, upstream ids, ...
        uri: Address of the store; None: MLFLOW_TRACKING_URI, or SQLite below ``results``; "off".
        delivery: When to send, and the results folder.

    An exception ends the run as FAILED; SystemExit (a stop that can be continued) and
    KeyboardInterrupt as KILLED. Both pass on.
    """
    delivery = delivery or Delivery()
    store = resolve_uri(uri, delivery.root)
    if store is None:
        if disk_passes() and not os.environ.get(_VARIABLE, "").strip():
            logger.warning("tracking is off: this disk goes with the job, no %s is set", _VARIABLE)
        yield NullTracker(job_id)
        return
    sender = Sender(state, store, delivery)
    tracker = SpoolTracker(
        state, stage=stage, name=name, job_id=job_id, sender=sender, delivery=delivery
    )
    tracker.log_params(params)
    tracker.set_tags(tags)
    tracker.flush()
    status = "FAILED"
    try:
        yield tracker
        status = "FINISHED"
    except (SystemExit, KeyboardInterrupt) as stop:
        whole = isinstance(stop, SystemExit) and stop.code in (None, 0)
        status = "FINISHED" if whole else "KILLED"
        raise
    finally:
        tracker.close(status)


def adopt(configured: str | None) -> None:
    """Make what the configuration says hold for this process and its jobs.

    What the environment says wins.
    """
    if configured and not os.environ.get(_VARIABLE, "").strip():
        os.environ[_VARIABLE] = configured


def resolve_uri(uri: str | None, root: Path = ROOT) -> str | None:
    """Address of the store: ``uri``, else MLFLOW_TRACKING_URI, else SQLite in ``root/mlflow``.

    Returns None for "off", and where that SQLite would go with the disk of a pod.

    Raises:
        ConfigError: a kind of address that MLflow cannot write runs to.
    """
    given = uri or os.environ.get(_VARIABLE, "").strip()
    if not given and disk_passes():
        return None
    if not given:
        return f"sqlite:///{tracking_store(root.resolve())}/mlflow.db"
    _require_known(given, "tracking uri" if uri else f"environment variable {_VARIABLE}")
    return None if given == OFF else given


def check_uri(uri: str | None, place: str) -> None:
    """Check the address in the configuration at ``place``, and that in the environment.

    Raises:
        ConfigError: a kind of address that MLflow cannot write runs to, or one with a user, a
            password, a token or a place for one, which a file that is kept and a command that is
            logged must not hold.
    """
    resolve_uri(None)
    if not uri:
        return
    if has_secret(uri):
        own = (
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
            if uri.lower().startswith("http")
            else f"{_VARIABLE} to the whole address, or PGUSER and PGPASSWORD of PostgreSQL"
        )
        raise ConfigError(
            f"{place}: the address has a user, a password, a token, or a query or fragment that "
            f"may hold one; leave it out and set {own}, in the environment"
        )
    _require_known(uri, place)


def _require_known(uri: str, place: str) -> None:
    if uri != OFF and uri.partition(":")[0].partition("+")[0] not in _SCHEMES:
        raise ConfigError(
            f"{place}: {displayed(uri)!r} is no address of a store: use off, sqlite:///<file>, "
            f"or one of {', '.join(_SCHEMES[1:])}"
        )
