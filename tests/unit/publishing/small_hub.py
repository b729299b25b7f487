"""A local hub with the part of the Hugging Face API that a push needs."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import yaml

SMALL = 10_000
"""Longer files go to the large-file storage, as the hub has it for those that are not text."""


@dataclass
class Hub:
    """What was asked of it, and the files that lie in its one repository."""

    token: str
    address: str = ""
    repositories: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)

    def answer(self, path: str, body: bytes) -> dict[str, Any]:
        if path == "/api/repos/create":
            request = json.loads(body)
            name = f"{request['organization']}/{request['name']}"
            self.repositories[name] = request
            return {"url": f"{self.address}/{name}", "name": name}
        if path.endswith("/preupload/main"):
            return {
                "files": [
                    {
                        "path": file["path"],
                        "uploadMode": "lfs" if file["size"] > SMALL else "regular",
                        "shouldIgnore": False,
                    }
                    for file in json.loads(body)["files"]
                ]
            }
        if path.endswith("/info/lfs/objects/batch"):
            return {
                "transfer": "basic",
                "objects": [
                    {**item, "actions": {"upload": {"href": f"{self.address}/large/{item['oid']}"}}}
                    for item in json.loads(body)["objects"]
                ],
            }
        if path == "/api/validate-yaml":  # of the card
            content = json.loads(body)["content"]
            metadata = yaml.safe_load(content.split("---")[1])
            return {"errors": [] if "license" in metadata else ["no license"], "warnings": []}
        assert path.endswith("/commit/main"), path
        for line in body.decode().splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                self.files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                self.files[value["path"]] = self.large[value["oid"]]
        commit = "c0ffee" + "0" * 34
        url = f"{self.address}/{next(iter(self.repositories))}/commit/{commit}"
        return {"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""}


@contextmanager
def serving(token: str) -> Iterator[Hub]:
    """Serve a hub that knows one token."""
    hub = Hub(token)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self._body()
            sent_token = self.headers.get("authorization", "").removeprefix("Bearer ")
            hub.tokens.add(sent_token)
            if sent_token != hub.token:
                self._reply(401, {"error": "Invalid credentials"}, f"Refused: {sent_token}")
                return
            self._reply(200, hub.answer(self.path.partition("?")[0], body))

        def do_GET(self) -> None:
            self._reply(404, {"error": f"{self.path} is not spoken here"})

        def do_PUT(self) -> None:
            hub.large[self.path.rpartition("/")[2]] = self._body()
            self._reply(200, {})

        def _body(self) -> bytes:
            if self.headers.get("transfer-encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("content-length") or 0))
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content

        def _reply(self, status: int, content: Any, reason: str | None = None) -> None:
            raw = json.dumps(content).encode()
            self.send_response(status, reason)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
