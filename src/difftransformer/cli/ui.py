"""The command `ui`: serve the reports and MLflow on loopback, linked to each other."""

import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from difftransformer.cli.command_group import (
    BUILD,
    ConfigDir,
    ResultsDir,
    TrackingUri,
    command,
    find_results,
)
from difftransformer.errors import in_one_line
from difftransformer.provenance.command_errors import report_errors
from difftransformer.provenance.masking import bare_address

logger = logging.getLogger(__name__)
Port = Annotated[
    int, typer.Option(min=1, max=65_534, help="Port for MLflow; the report uses PORT + 1.")
]
_STOP_TIMEOUT = 10.0  # seconds


@command("ui", BUILD, "", "--results results --port 8000")
def ui(
    results: ResultsDir = None,
    tracking: TrackingUri = "",
    config_dir: ConfigDir = Path("config"),
    port: Port = 5000,
) -> None:
    """Serve the reports and MLflow on loopback, linked to each other, until interrupted.

    The printed addresses contain a token, new at each start. Requests without it are refused, since
    other users of the machine can connect to the ports.
    """
    with report_errors():
        from difftransformer.errors import UserError
        from difftransformer.reporting.serving import HOST, report_server, scales_with_report
        from difftransformer.tracking.address import is_database
        from difftransformer.tracking.views import EXPERIMENTS

        root, uri = find_results(config_dir, results, tracking)
        own = is_database(uri) and uri != "off"
        token = secrets.token_urlsafe(24)
        reports = f"http://{HOST}:{port + 1}/{token}"
        mlflow = f"http://{HOST}:{port}/{token}" if own else bare_address(uri)
        listening = _listen(port) if own else None
        # Databricks has its own web interface; its address does not follow from the store's.
        has_server = own or uri.startswith("http")
        runs = _Runs(uri if has_server else "off", root, mlflow)
        with report_server(root, port + 1, runs.find, token) as server:
            served = scales_with_report(root)
            if not served:
                raise UserError(
                    f"{root}: has no report yet; `make reproduce` builds tables and a report"
                )
            # Before MLflow starts, since two processes that create the same database both fail.
            views = runs.views()
            asked_to_stop = _stop_signals()
            threading.Thread(target=server.serve_forever, daemon=True).start()
            running: subprocess.Popen[bytes] | None = None
            try:
                running = _start(uri, root, listening, reports) if listening else None
                for scale in served:
                    typer.echo(f"report at scale {scale}: {reports}/{scale}/")
                if has_server:
                    soon = ", in some ten seconds" if own else ""
                    typer.echo(f"runs{soon}: {mlflow}{EXPERIMENTS}")
                for stage, address in views.items():
                    typer.echo(f"  {stage}: {address}")
                while running is None or running.poll() is None:
                    if asked_to_stop.wait(0.2):
                        return
            finally:
                _stop(running)
                server.shutdown()
            raise UserError(f"MLflow exited with status {running.returncode}")


class _Runs:
    """Addresses of runs in MLflow; the store is opened at the first call.

    Args:
        uri: Address of the tracking store, or "off".
        results: Results folder.
        mlflow: Address of MLflow's web interface.
    """

    def __init__(self, uri: str, results: Path, mlflow: str) -> None:
        self._uri, self._results, self._mlflow = uri, results, mlflow
        self._lock = threading.Lock()
        self._opened: Any = None

    def find(self, job: str) -> str | None:
        """Return the address of the MLflow run of a job, or None if the job has no run."""
        if self._uri == "off":
            return None
        path = self._store().find(job)
        return f"{self._mlflow}{path}" if path else None

    def views(self) -> dict[str, str]:
        """Return the address of each experiment's view by stage; empty for stores on a server.

        A server may be down, and starting must not wait for it.
        """
        if not self._uri.startswith("sqlite:"):
            return {}
        try:
            paths = self._store().views()
        except Exception as error:  # MLflow raises many kinds; reports are served without views
            logger.warning("%s: %s: no views of its experiments", self._uri, in_one_line(error))
            return {}
        return {stage: self._mlflow + path for stage, path in paths.items()}

    def _store(self) -> Any:
        with self._lock:
            if self._opened is None:
                from difftransformer.tracking.mlflow_runs import MlflowRuns

                self._opened = MlflowRuns(self._uri, self._results)
            return self._opened


def _listen(port: int) -> socket.socket:
    """Return a listening socket on loopback for MLflow.

    MLflow takes some seconds to start.

    The socket is bound here, so that no other process can take the port and read the token from the
    first request. Requests wait until MLflow has started.
    """
    from difftransformer.reporting.serving import HOST, port_error

    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
    except OSError as error:
        listening.close()
        raise port_error(port, error) from None
    listening.listen()
    return listening


def _start(
    uri: str, results: Path, listening: socket.socket, reports: str
) -> "subprocess.Popen[bytes]":
    """Start MLflow's server on a socket, which is closed here, and return its process."""
    from difftransformer.tracking import server, store

    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    # All users of the machine can read a command line, so a token or password must not be in it.
    secret = {"MLFLOW_BACKEND_STORE_URI": uri, server.REPORTS_VARIABLE: reports}
    secret["MLFLOW_DEFAULT_ARTIFACT_ROOT"] = store.artifact_location(results)
    with listening:
        return subprocess.Popen(
            [sys.executable, "-m", server.__name__, str(listening.fileno())],
            env=quiet | os.environ | secret,
            pass_fds=[listening.fileno()],
            start_new_session=True,
        )


def _stop_signals() -> threading.Event:
    """Return an event that is set by SIGINT, SIGTERM and SIGHUP, however often they arrive.

    If a signal raised an exception, a second one could interrupt the stopping of MLflow, which
    would outlive this process and keep its port. An ignored signal, as under nohup, stays ignored.
    """
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: stop.set())
    return stop


def _stop(running: "subprocess.Popen[bytes] | None") -> None:
    """Stop MLflow's server and its worker processes."""
    if running is None:
        return
    for kind in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(running.pid, kind)
            running.wait(_STOP_TIMEOUT)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
