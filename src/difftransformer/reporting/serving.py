"""Server of reports on the loopback interface, with links from jobs to their runs in MLflow.

Every user of the machine can connect to the port, so each path begins with a token. Served pages
have an attribute from which their script makes the links; pages from disk show job ids only.
"""

import hmac
import logging
import re
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from difftransformer.errors import UserError, in_one_line
from difftransformer.provenance.layout import Layout

logger = logging.getLogger(__name__)
HOST = "127.0.0.1"
_JOB = re.compile(r"[\w.-]{1,250}")
_MOST_CONNECTIONS = 64
"""Largest number of open connections, each with a thread; a browser opens six."""
_KINDS = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}

FindRun = Callable[[str], str | None]
"""Function that returns the address of a job's run in MLflow; None: no such run."""


def report_server(results: Path, port: int, find_run: FindRun, token: str) -> ThreadingHTTPServer:
    """Return an HTTP server of the reports at ``/{token}/{scale}/``.

    ``/{token}/run/{job id}`` redirects to the job's run in MLflow.

    It listens on loopback only, serves only files of report folders in ``results``, and refuses
    paths without the token.

    Raises:
        UserError: The port is in use, or may not be used.
    """
    try:
        return _Server((HOST, port), partial(_Handler, results.resolve(), find_run, token))
    except OSError as error:
        raise port_error(port, error) from None


def port_error(port: int, error: OSError) -> UserError:
    """Return the error to raise if a port cannot be used, with an explanation."""
    reason = (error.strerror or "cannot be used").lower()
    return UserError(
        f"port {port}: {reason}; choose another port, such as `make ui PORT={port + 10}`"
    )


def scales_with_report(results: Path) -> list[str]:
    """Return the names of the scales in ``results`` that have a report."""
    layouts = (Layout.of(path) for path in results.glob("*"))
    return sorted(layout.scale for layout in layouts if Path(layout.page("index")).is_file())


class _Server(ThreadingHTTPServer):
    """Limits the number of open connections, and logs errors in one line."""

    request_queue_size = _MOST_CONNECTIONS

    def __init__(self, *args: Any) -> None:
        self._slots = threading.Semaphore(_MOST_CONNECTIONS)
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread if a slot is free, else close the connection."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and free the slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error as a warning, unless the client closed its connection."""
        error = sys.exception()
        if isinstance(error, Exception) and not isinstance(error, ConnectionError):
            logger.warning("reports: a request failed: %s", in_one_line(error))


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; the base class refuses other methods.

    ``timeout``: seconds after which an idle client is disconnected.
    """

    timeout = 10

    def __init__(self, results: Path, find_run: FindRun, token: str, *args: object) -> None:
        self.results, self.find_run, self.token = results, find_run, token
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answer with a file, a list of scales, or a redirect to a run."""
        # Refuse other host names, against DNS rebinding.
        if (self.headers.get("Host") or "").rpartition(":")[0] not in (HOST, "localhost"):
            return self._send_text(HTTPStatus.FORBIDDEN, "Open it as http://127.0.0.1")
        parts = [part for part in unquote(urlsplit(self.path).path).split("/") if part]
        if not parts or not hmac.compare_digest(parts.pop(0).encode(), self.token.encode()):
            return self._send_text(HTTPStatus.FORBIDDEN, "Open the address that `make ui` printed.")
        return self._serve(parts)

    do_HEAD = do_GET  # noqa: N815

    def _serve(self, parts: Sequence[str]) -> None:
        if len(parts) == 2 and parts[0] == "run":
            return self._redirect_to_run(parts[1])
        if not parts:
            return self._list()
        # Only known scales and printable paths may appear in the response.
        if parts[0] not in scales_with_report(self.results) or not "".join(parts).isprintable():
            return self._send_text(HTTPStatus.NOT_FOUND, "There is no such page.")
        if len(parts) == 1 and not self.path.endswith("/"):
            return self._redirect(f"/{self.token}/{quote(parts[0])}/")
        return self._file(parts)

    def _file(self, parts: Sequence[str]) -> None:
        scale, *rest = parts
        folder = Path(Layout(str(self.results), scale).report).resolve()
        path = folder.joinpath(*rest or ["index.html"]).resolve()
        inside = folder.parents[1] == self.results and path.is_relative_to(folder)
        if not inside or path.suffix not in _KINDS:
            return self._send_text(HTTPStatus.NOT_FOUND, "There is no such page.")
        try:
            body = path.read_bytes()
        except OSError:  # no such file, or not a valid file name
            return self._send_text(HTTPStatus.NOT_FOUND, "There is no such page.")
        if path.suffix == ".html":
            served = f'<html lang="en" data-mlflow="/{self.token}/run/">'.encode()
            body = body.replace(b'<html lang="en">', served, 1)
        return self._answer(HTTPStatus.OK, _KINDS[path.suffix], body)

    def _redirect_to_run(self, job: str) -> None:
        address = self.find_run(job) if _JOB.fullmatch(job) else None
        if address is None:
            return self._send_text(HTTPStatus.NOT_FOUND, f"MLflow has no run of {job}.")
        return self._redirect(address)

    def _list(self) -> None:
        links = [
            f'<li><a href="/{self.token}/{escape(scale)}/">{escape(scale)}</a></li>'
            for scale in scales_with_report(self.results)
        ]
        page = (
            "<!doctype html><html lang=en><title>Reports</title><h1>Reports</h1>"
            f"<ul>{''.join(links)}</ul>"
        )
        self._answer(HTTPStatus.OK, "text/html", page.encode())

    def _redirect(self, location: str) -> None:
        self.send_response(HTTPStatus.FOUND)
        self.send_header("Location", location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_text(self, status: HTTPStatus, text: str) -> None:
        self._answer(status, "text/plain", f"{text}\n".encode())

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Referrer-Policy", "no-referrer")  # the address has the token
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Do not log requests."""
