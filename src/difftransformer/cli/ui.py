"""Commands that show what was built: reports beside MLflow's runs, and two builds compared."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from difftransformer.cli.frame import BUILD, Config, FoundResults, FoundUri, find_results, people
from difftransformer.errors import in_one_line
from difftransformer.provenance.masking import bare_address
from difftransformer.provenance.reporting import reporting

logger = logging.getLogger(__name__)
Port = Annotated[int, typer.Option(min=1, max=65_534, help="Of MLflow; the reports have the next.")]
_PATIENCE, _STARTING = 10.0, 60.0  # seconds


@people(BUILD)
def ui(
    results: FoundResults = None,
    tracking: FoundUri = "",
    config: Config = Path("config"),
    port: Port = 5000,
) -> None:
    """Serve the reports and MLflow's runs on loopback, side by side, until interrupted."""
    with reporting():
        from difftransformer.errors import UserError
        from difftransformer.provenance.mlflow_views import EXPERIMENTS
        from difftransformer.provenance.spool import is_database
        from difftransformer.reporting.serving import HOST, report_server, scales

        root, uri = find_results(config, results, tracking)
        own = is_database(uri) and uri != "off"
        mlflow = f"http://{HOST}:{port}" if own else bare_address(uri)
        if own:
            _require_free(port)
        # Databricks shows its runs itself, where the address of its store does not say.
        shown = own or uri.startswith("http")
        runs = _Runs(uri if shown else "off", root, mlflow, port if own else None)
        with report_server(root, port + 1, runs.find) as server:
            served = scales(root)
            if not served:
                raise UserError(
                    f"{root}: has no report yet; `make reproduce` builds tables and a report"
                )
            # Before MLflow starts: two processes that create one database both fail.
            views = runs.views(f"http://{HOST}:{port + 1}")
            asked_to_stop = _stop_signals()
            threading.Thread(target=server.serve_forever, daemon=True).start()
            running: subprocess.Popen[bytes] | None = None
            try:
                running = _start(uri, port) if own else None
                for scale in served:
                    typer.echo(f"report at scale {scale}: http://{HOST}:{port + 1}/{scale}/")
                if shown:
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
            raise UserError(f"mlflow ui ended by itself with status {running.returncode}")


@people(BUILD)
def compare(
    kept: Annotated[
        Path, typer.Argument(metavar="A", help="Folder of a scale, such as results/tiny.")
    ],
    other: Annotated[
        Path, typer.Argument(metavar="B", help="The same of another machine, commit or scale.")
    ],
    output: Annotated[Path, typer.Option(help="Page to write.")] = Path("comparison.html"),
) -> None:
    """Compare the tables of two builds, within noise or not, as a page that stands alone."""
    with reporting():
        from difftransformer.reporting.comparison import write_comparison

        found = write_comparison(kept, other, output)
        typer.echo(f"{output}: {found.summary}")


class _Runs:
    """Where MLflow shows the runs of a store, which is opened at the first question.

    Args:
        uri: The store, or "off".
        results: Root of results.
        mlflow: Address of MLflow.
        port: Where it is started on this machine; None: it runs elsewhere.
    """

    def __init__(self, uri: str, results: Path, mlflow: str, port: int | None) -> None:
        self._uri, self._results, self._mlflow, self._port = uri, results, mlflow, port
        self._lock = threading.Lock()
        self._opened: Any = None

    def find(self, job: str) -> str | None:
        """Return the address of a job's run, if it is there."""
        if self._uri == "off":
            return None
        if self._port is not None:
            _await(self._port)  # whoever clicks at once waits for MLflow, which takes its time
        found = self._store().find(job)
        return f"{self._mlflow}{found}" if found else None

    def views(self, reports: str) -> dict[str, str]:
        """Return the address of each experiment's view, of a file alone: a server may be down.

        The runs of such a file lead to the reports at the address ``reports``.
        """
        if not self._uri.startswith("sqlite:"):
            return {}
        try:
            found = self._store().views()
            self._store().link_reports(reports)
        except Exception as error:  # of many kinds; reports are served without
            logger.warning("%s: %s: no views of its experiments", self._uri, in_one_line(error))
            return {}
        return {stage: self._mlflow + place for stage, place in found.items()}

    def _store(self) -> Any:
        with self._lock:
            if self._opened is None:
                from difftransformer.provenance.mlflow_sink import MlflowSink

                self._opened = MlflowSink(self._uri, self._results)
            return self._opened


def _require_free(port: int) -> None:
    from difftransformer.reporting.serving import HOST, port_error

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise port_error(port, error) from None


def _await(port: int) -> None:
    """Wait until something listens on a port, but not for ever."""
    from difftransformer.reporting.serving import HOST

    end = time.monotonic() + _STARTING
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.2)


def _start(uri: str, port: int) -> "subprocess.Popen[bytes]":
    from difftransformer.reporting.serving import HOST

    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    store = {"MLFLOW_BACKEND_STORE_URI": uri}  # all users see a command line, a password in it, too
    words = ["ui", "--host", HOST, "--port", str(port), "--workers", "1"]
    return subprocess.Popen(
        [sys.executable, "-m", "mlflow", *words],
        env=quiet | os.environ | store,
        start_new_session=True,
    )


def _stop_signals() -> threading.Event:
    """Return an event that SIGINT, SIGTERM and SIGHUP set, however often they arrive.

    If a signal raised an exception, a second one could interrupt the stopping of MLflow, which
    would outlive this process and keep its port. An ignored signal, as under nohup, stays ignored.
    """
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: stop.set())
    return stop


def _stop(running: "subprocess.Popen[bytes] | None") -> None:
    """End MLflow's server with its workers."""
    if running is None:
        return
    for kind in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(running.pid, kind)
            running.wait(_PATIENCE)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
