"""The store of a workflow: made when asked for, brought up to date after the last job.

Both are commands of their own, and the only ones beside a long training that import mlflow.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from difftransformer.errors import ConfigError, UserError
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.masking import displayed
from difftransformer.provenance.mlflow_views import STAGES
from difftransformer.provenance.refusals import refusal_of
from difftransformer.provenance.reporting import one_line
from difftransformer.provenance.spool import (
    JOURNAL,
    Record,
    Sent,
    is_written,
    read_records,
    sqlite_file,
    statuses,
    whole_size,
)
from difftransformer.provenance.tracking import ROOT, resolve_uri

_SECONDS_BETWEEN_LINES = 15.0
_MOST_FAILURES = 3  # in a row; then the store is down and the others wait too

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SyncReport:
    """Journals that one synchronisation could not send, and why."""

    unsent: tuple[Path, ...] = ()
    reason: str = ""


def initialise_tracking(uri: str | None, output: Path, root: Path = ROOT) -> None:
    """Make the store and its experiments, then the marker file ``output``.

    A server that does not answer is no reason to stop a workflow: jobs write locally first and
    the experiments are made when it is back. What does not come back by itself is one.

    Raises:
        ConfigError: an address MLflow cannot use, a SQLite file that cannot be made, a password
            that is refused, a database or a driver that is not there.
    """
    store = resolve_uri(uri, root)
    if store is not None:
        try:
            from difftransformer.provenance.mlflow_sink import MlflowSink

            sink = MlflowSink(store, root)
            for stage in STAGES:
                sink.experiment(stage)
        except Exception as error:
            if store.startswith("sqlite:"):
                raise ConfigError(
                    f"tracking store {displayed(store)} cannot be made: {refusal_of(error).reason}"
                ) from error
            refusal = refusal_of(error)
            if refusal.mistake:
                raise ConfigError(f"tracking store {displayed(store)}: {refusal.reason}") from error
            logger.warning(
                f"tracking: {displayed(store)} does not answer ({refusal.reason}); jobs write "
                f"locally, `difftransformer sync_tracking --results {root}` sends it later"
            )
    marker = {"store": displayed(store) if store else "off", "stages": list(STAGES)}
    write_text(output, json.dumps(marker, indent=1) + "\n")


def sync_tracking(root: Path = ROOT, uri: str | None = None) -> SyncReport:
    """Send every journal below ``root`` that has something unsent, oldest job first.

    Also marks runs of ours whose job was killed and does not live any more. Needs no import of
    mlflow when there is nothing to send. What could not be sent is named in the report and stays
    for the next time.
    """
    store = resolve_uri(uri, root)
    if store is None:
        return SyncReport()
    pending = _pending(root, store)
    if not pending:
        return SyncReport()
    logger.info("tracking: sending %d journals to %s", len(pending), displayed(store))
    report = _send_all(pending, store, root)
    if report.unsent:
        logger.warning(
            f"tracking: {len(report.unsent)} of {len(pending)} journals are not sent "
            f"({report.reason}); run `difftransformer sync_tracking --results {root}` when the "
            "store is back"
        )
    return report


def close_stale(root: Path = ROOT, uri: str | None = None) -> int:
    """End runs of this results folder that stayed RUNNING though no job does them any more.

    `sync_tracking` marks a killed run by its journal; this finds those whose journal is gone too.
    Runs of others, and of other results folders, are not looked at. Returns how many it ended.

    Raises:
        UserError: the store does not answer.
    """
    store = resolve_uri(uri, root)
    if store is None:
        return 0
    states = [path.parent for path in root.rglob(JOURNAL)]
    living = {_header(state).get("spool", "") for state in states if is_written(state)}
    try:
        from difftransformer.provenance.mlflow_sink import MlflowSink

        closed = MlflowSink(store, root).close_stale(living)
    except Exception as error:
        raise UserError(
            f"tracking store {displayed(store)} does not answer ({refusal_of(error).reason}): "
            "no run was ended; try again when it is back"
        ) from error
    logger.info("tracking: ended %d runs that no job does any more", closed)
    return closed


def _send_all(pending: list[Path], store: str, root: Path) -> SyncReport:
    from difftransformer.provenance.mlflow_sink import MlflowSink

    try:
        sink = MlflowSink(store, root)
    except Exception as error:
        return SyncReport(unsent=tuple(pending), reason=refusal_of(error).reason)
    unsent: list[Path] = []
    reason, failures = "", 0
    told = time.monotonic()
    for number, state in enumerate(pending):
        if time.monotonic() - told >= _SECONDS_BETWEEN_LINES:
            logger.info("tracking: %d of %d journals sent", number, len(pending))
            told = time.monotonic()
        if failures < _MOST_FAILURES:
            try:
                sink.send(state)
                sink.mark_dead(state)
                failures = 0
                continue
            except Exception as error:  # one store, many journals: the next one may pass
                reason, failures = refusal_of(error).reason, failures + 1
        unsent.append(state)
    try:
        sink.mark_shown()
    except Exception as error:  # it is done again when something else is sent
        logger.warning(
            "tracking: runs have no tags of their tables (%s) until a next journal is sent",
            one_line(error),
        )
    return SyncReport(tuple(unsent), reason)


def _pending(root: Path, store: str) -> list[Path]:
    """States with a journal to send, oldest job first."""
    # Whatever was sent to a SQLite file went with it.
    gone = store.startswith("sqlite:") and not sqlite_file(store).exists()
    states = [path.parent for path in root.rglob(JOURNAL)]
    news = [state for state in states if gone or _has_news(state, store)]
    return sorted(news, key=lambda state: (_header(state).get("at", 0), str(state)))


def _has_news(state: Path, store: str) -> bool:
    """Whether something is unsent, or a sent run may have to be marked as killed."""
    sent = Sent.load(state, store)
    unsent = sent.offset < whole_size(state)
    return unsent or (not sent.ended and statuses(state)[-1:] == ["RUNNING"])


def _header(state: Path) -> Record:
    """First record of a journal: which job it is of."""
    return next(read_records(state / JOURNAL), ({"kind": "damaged"}, 0))[0]
