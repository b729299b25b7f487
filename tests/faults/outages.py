"""A real MLflow server, and a proxy before it that fails as servers do."""

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Literal

Mode = Literal["up", "down", "slow", "500", "lost"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def mlflow_server(
    folder: Path,
    store: str = "",
    artifacts: str = "",
    options: Sequence[str] = ("--workers", "1"),
    settings: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Run a server, by default with a SQLite file and artifacts in ``folder``; gives its port."""
    port = free_port()
    words = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--backend-store-uri", store or f"sqlite:///{folder}/server.db", *options]
    words += ["--serve-artifacts", "--artifacts-destination", artifacts or f"{folder}/artifacts"]
    environment = os.environ | {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        **(settings or {}),
    }
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            words, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 120
        while not _answers(port):
            assert process.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.2)
        yield port
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


class Proxy:
    """Forwards to a server, or does what ``mode`` says.

    down: ends the connection without a word; 500: answers so; lost: does what is asked and answers
    500; slow: waits ``delay`` seconds before each call.
    """

    def __init__(self, target: int) -> None:
        self.mode: Mode = "up"
        self.delay = 5.0
        self.calls = 0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.close_connection = True
                super().handle_one_request()

            def forward(self) -> None:
                proxy.calls += 1
                mode = proxy.mode
                size = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(size)
                if mode == "down":
                    return
                if mode == "500":
                    self.answer(500, b"{}")
                    return
                if mode == "slow":
                    time.sleep(proxy.delay)
                status, content = self.ask(body)
                self.answer(500 if mode == "lost" else status, content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward  # noqa: N815

            def ask(self, body: bytes) -> tuple[int, bytes]:
                connection = http.client.HTTPConnection("127.0.0.1", target, timeout=60)
                headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
                try:
                    connection.request(self.command, self.path, body, headers)
                    reply = connection.getresponse()
                    return reply.status, reply.read()
                finally:
                    connection.close()

            def answer(self, status: int, content: bytes) -> None:
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(content)))
                    self.send_header("Connection", "close")
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:
                    pass  # who asked has given up

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
