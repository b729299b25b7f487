"""An S3 server of its own: moto's, on loopback, and a proxy before it that refuses writes."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3

READABLE = ("GET", "HEAD")
BUCKET = "runs"
"""Where a tracking server keeps artifacts."""


class Server:
    """A running server, and how its clients find it."""

    def __init__(self, url: str, key: str = "someone", secret: str = "canary-secret") -> None:
        self.url, self.key, self.secret = url, key, secret

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "2",
        }

    def client(self, service: str = "s3") -> Any:
        return boto3.client(
            service, endpoint_url=self.url, region_name="us-east-1",
            aws_access_key_id=self.key, aws_secret_access_key=self.secret,
        )  # fmt: skip

    def reader(self) -> "Server":
        """Somebody who may read and not write; from now on rights are looked at."""
        iam, rights = self.client("iam"), {"Effect": "Allow", "Resource": "*"}
        rights["Action"] = ["s3:Get*", "s3:List*", "s3:HeadBucket"]
        iam.create_user(UserName="reader")
        document = json.dumps({"Version": "2012-10-17", "Statement": [rights]})
        iam.put_user_policy(UserName="reader", PolicyName="reading", PolicyDocument=document)
        key = iam.create_access_key(UserName="reader")["AccessKey"]
        reset = urllib.request.Request(
            f"{self.url}/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"}
        )
        urllib.request.urlopen(reset).close()
        return Server(self.url, key["AccessKeyId"], key["SecretAccessKey"])

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        pages = (
            self.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        )
        return sorted(entry["Key"] for page in pages for entry in page.get("Contents", []))

    def copies(self, bucket: str, prefix: str = "state") -> list[str]:
        """Whole checkpoints of the training of `diff`."""
        keys = self.keys(bucket, f"{prefix}/smoke/pretrain/diff/0/")
        return [key.split("/")[-2] for key in keys if key.endswith("/sums.json")]

    def read(self, bucket: str, key: str) -> bytes:
        return bytes(self.client().get_object(Bucket=bucket, Key=key)["Body"].read())

    def download(self, bucket: str, prefix: str, folder: Path) -> None:
        for key in self.keys(bucket, prefix):
            path = folder / key.removeprefix(prefix).lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.read(bucket, key))


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Start the server, wait until it answers, end it."""
    port = free_port()
    words = ["-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log)
    server = Server(f"http://127.0.0.1:{port}")
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(server.url, timeout=5).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, "no S3 server"
                time.sleep(0.1)
        yield server
    finally:
        process.kill()
        process.wait()


@contextmanager
def refusing(
    server: Server, part: str, status: int, code: str, after: threading.Event | None = None
) -> Iterator[Server]:
    """Answer requests from the server, but refuse to write names that ``part`` matches.

    No sooner than ``after`` something: until then who writes it waits.
    """

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_request(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.command not in READABLE and re.search(part, self.path):
                if after is not None:
                    after.wait()
                error_body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
                self.answer(status, {"Content-Type": "application/xml"}, error_body)
                return
            headers = {"Content-Type": ""} | dict(self.headers)  # urllib would say a form's
            forwarded = urllib.request.Request(
                server.url + self.path, content or None, headers, method=self.command
            )
            try:
                with urllib.request.urlopen(forwarded, timeout=60) as response:
                    self.answer(response.status, dict(response.headers), response.read())
            except urllib.error.HTTPError as refused:
                self.answer(refused.code, dict(refused.headers), refused.read())

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request  # noqa: N815

        def answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            length = headers.get("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield Server(f"http://127.0.0.1:{proxy.server_port}")
    finally:
        if after is not None:
            after.set()
        proxy.shutdown()
        proxy.server_close()
        thread.join()
