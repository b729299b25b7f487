"""The part of Kubernetes' API that Snakemake's plugin calls, on loopback: pods are processes here.

What the plugin asks for is kept as it came. A pod runs in an empty folder of its own with the
environment of its secret, and nothing else of who asked for it; its image is this installation.
"""

import base64
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml


class Cluster:
    """What there is: secrets, jobs as they were asked for, and their processes."""

    def __init__(self, folder: Path, image: dict[str, str], *, runs: bool) -> None:
        self.folder, self.image, self.runs = folder, image, runs
        self.jobs: dict[str, dict[str, Any]] = {}
        self.secrets: dict[str, dict[str, str]] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.kubeconfig = folder / "kubeconfig"

    def containers(self) -> list[dict[str, Any]]:
        return [job["spec"]["template"]["spec"]["containers"][0] for job in self.jobs.values()]

    def logs(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def start(self, job: dict[str, Any]) -> None:
        name, pod = job["metadata"]["name"], job["spec"]["template"]["spec"]
        self.jobs[name] = job
        (container,) = pod["containers"]
        values = {
            variable["name"]: self.secrets[key["name"]][key["key"]]
            for variable in container.get("env", [])
            for key in (variable["valueFrom"]["secretKeyRef"],)
        }
        if not self.runs:
            return
        home = self.folder / name
        home.mkdir()
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [*container["command"], *container["args"]], cwd=home, stdout=log, stderr=log,
                env=self.image | values | {"HOME": str(home)}, start_new_session=True,
            )  # fmt: skip

    def exit_code(self, name: str) -> int | None:
        """None while it runs; where pods do not run, each fails at once."""
        return self.processes[name].poll() if self.runs else 1

    def kill(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, 9)
            process.wait()


def _handler(cluster: Cluster) -> type[BaseHTTPRequestHandler]:
    class Api(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            resource = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.endswith("/secrets"):
                decoded = {k: base64.b64decode(v).decode() for k, v in resource["data"].items()}
                cluster.secrets[resource["metadata"]["name"]] = decoded
            else:
                cluster.start(resource)
            self.answer(resource, 201)

        def do_GET(self) -> None:
            if match := re.search(r"/jobs/([\w-]+)/status", self.path):
                code = cluster.exit_code(match[1])
                status = {} if code is None else {"failed" if code else "succeeded": 1}
                self.answer(cluster.jobs[match[1]] | {"status": status})
            elif self.path.partition("?")[0].endswith("/pods"):
                self.answer({"kind": "PodList", "apiVersion": "v1", "items": []})
            else:
                self.answer({}, 404)

        def do_DELETE(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})

        def answer(self, content: dict[str, Any], status: int = 200) -> None:
            body = json.dumps(content).encode()
            self.send_response_only(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Api


@contextmanager
def cluster(folder: Path, *, runs: bool) -> Iterator[Cluster]:
    """Serve the API; ``runs``: whether pods run, or are only looked at."""
    folder.mkdir()
    image = {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "OMP_NUM_THREADS": "1",
        "MLFLOW_TRACKING_URI": "off",
    }
    pods = Cluster(folder, image, runs=runs)
    api = ThreadingHTTPServer(("127.0.0.1", 0), _handler(pods))
    thread = threading.Thread(target=api.serve_forever, daemon=True)
    thread.start()
    here = {"name": "here"}
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [here | {"cluster": {"server": f"http://127.0.0.1:{api.server_port}"}}],
        "contexts": [here | {"context": {"cluster": "here", "user": "here"}}],
        "users": [here | {"user": {}}],
    }  # fmt: skip
    pods.kubeconfig.write_text(yaml.safe_dump(config))
    try:
        yield pods
    finally:
        pods.kill()
        api.shutdown()
        api.server_close()
        thread.join()
