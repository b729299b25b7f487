"""The report server against malicious and disconnected clients."""

import logging
import socket
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from difftransformer.reporting import serving

PATIENCE = 30.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    folder = tmp_path / "tiny" / "report"
    folder.mkdir(parents=True)
    (folder / "index.html").write_text('<html lang="en">here')
    (folder / "folder.html").mkdir()

    def fail(job: str) -> str | None:
        raise RuntimeError(f"the store is down:\nno {job}")

    with serving.report_server(tmp_path, 0, fail, "token") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()


def connected(server: ThreadingHTTPServer) -> socket.socket:
    connection = socket.create_connection(server.server_address[:2], PATIENCE)
    connection.settimeout(PATIENCE)
    return connection


def answer(server: ThreadingHTTPServer, path: str) -> bytes:
    """What is sent back, up to the end of the connection; nothing where that is cut."""
    with connected(server) as connection:
        try:
            connection.sendall(f"GET /token{path} HTTP/1.0\r\nHost: 127.0.0.1:80\r\n\r\n".encode())
            return b"".join(iter(lambda: connection.recv(65536), b""))
        except ConnectionError:  # the server need not read what is too long
            return b""


@pytest.mark.parametrize(
    "path",
    [
        f"/tiny/{'a' * 5000}.html", f"/tiny/{'a' * 300}.html", f"/tiny/{'a/' * 5000}b.html",
        f"/tiny/{'%61' * 5000}.html", f"/{'a' * 5000}/", f"/run/{'a' * 5000}",
        "/tiny/folder.html", "/tiny/%ff.html",
    ],
)  # fmt: skip
def test_an_unknown_path_is_answered_with_404(
    path: str, server: ThreadingHTTPServer, capfd: pytest.CaptureFixture[str]
) -> None:
    assert answer(server, path).split(b"\r\n")[0].endswith(b" 404 Not Found")
    assert capfd.readouterr().err == ""


def test_a_request_without_end_is_refused(
    server: ThreadingHTTPServer, capfd: pytest.CaptureFixture[str]
) -> None:
    for letters in (70_000, 1_000_000):
        response = answer(server, f"/{'a' * letters}")
        assert response == b"" or response.startswith(b"HTTP/1.0 414")
    assert b" 200 OK" in answer(server, "/tiny/")
    assert capfd.readouterr().err == ""


def test_idle_connections_end_and_have_a_bound(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 0 < serving._Handler.timeout <= 60
    monkeypatch.setattr(serving._Handler, "timeout", 1)
    before = threading.active_count()
    idle = [connected(server) for _ in range(2 * serving._MOST_CONNECTIONS)]
    assert [connection.recv(1) for connection in idle] == [b""] * len(
        idle
    )  # closed, at once or in a second
    assert threading.active_count() <= before + serving._MOST_CONNECTIONS
    for connection in idle:
        connection.close()
    assert b" 200 OK" in answer(server, "/tiny/")


def test_an_error_of_the_store_is_logged_in_one_line(
    server: ThreadingHTTPServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert answer(server, "/run/job") == b""
    assert [record.getMessage() for record in caplog.records] == [
        "reports: a request failed: RuntimeError: the store is down:"
    ]
