"""`make ui`: links between cells and their runs in MLflow, in the running UI."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from fake_results import FakeResults

from difftransformer.provenance.result import read_result
from difftransformer.tracking.mlflow_runs import MlflowRuns
from difftransformer.tracking.run_context import start_run
from difftransformer.tracking.server import REPORTS_VARIABLE
from difftransformer.tracking.sync import sync_tracking

Open = Callable[..., Any]
PATIENCE = 90
NOTE = "In the report: [table6](reports/tiny/table6.html)"


class Served(NamedTuple):
    """MLflow and the reports, both running."""

    process: int
    port: int
    token: str

    @property
    def mlflow(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.token}"

    @property
    def reports(self) -> str:
        return f"http://127.0.0.1:{self.port + 1}/{self.token}"


@pytest.fixture(scope="module")
def served(made: FakeResults, site: Path) -> Iterator[Served]:
    """One job of a cell is tracked, with a file, and its description leads to a report."""
    root = made.root.parent
    result = read_result(made.root / "evaluations/validation_slices/diff/0.json")
    store = f"sqlite:///{root}/mlflow/mlflow.db"
    with start_run(
        "evaluate", "tiny/diff/0", result.job_id, made.root / "state" / "evaluate", {"n": 2},
        {"run": "diff", "suite": "validation_slices", "seed": 0, "scale": "tiny",
         "mlflow.note.content": NOTE}, store,
    ) as tracker:  # fmt: skip
        tracker.log_metrics({"loss": 3.25}, 1)
        tracker.log_artifact(made.root / "evaluations/validation_slices/diff/0.json")
    assert not sync_tracking(root, store).unsent
    port = free_pair()
    words = ["difftransformer", "ui", "--results", str(root), "--tracking", store]
    running = subprocess.Popen(
        [sys.executable, "-m", *words, "--port", str(port)], stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    output = running.stdout.readline()
    match = re.search(rf"http://127\.0\.0\.1:{port + 1}/([\w-]{{32}})/tiny/$", output.rstrip())
    assert match is not None, output
    assert f"http://127.0.0.1:{port}/{match[1]}/#/" in running.stdout.readline()
    yield Served(running.pid, port, match[1])
    running.send_signal(signal.SIGTERM)
    assert running.wait(PATIENCE) == 0
    with socket.socket() as probe:  # MLflow is gone with it
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def free_pair() -> int:
    """A port that is free, and so is the next."""
    for port in range(20_000 + os.getpid() % 20_000, 60_000, 7):
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


def ask(address: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    body = b"{}" if method in {"POST", "PUT"} else None
    headers |= {"Content-Type": "application/json"}
    request = urllib.request.Request(address, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return int(answer.status), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def status(address: str, **headers: str) -> int:
    return ask(address, **headers)[0]


def test_a_cell_leads_to_its_run_in_mlflow_and_back(visit: Open, served: Served) -> None:
    page = visit(f"{served.reports}/tiny/table6.html")
    page.click("[data-cell='diff/valid']")
    page.locator("#panel summary").first.click()
    with page.context.expect_page() as opened:
        page.click("#panel a")
    run = opened.value
    where = re.compile(rf"{served.mlflow}/#/experiments/\d+/runs/\w+")
    run.wait_for_url(where, timeout=PATIENCE * 1000)
    run.get_by_text("tiny/diff/0").first.wait_for(timeout=PATIENCE * 1000)
    link = run.get_by_role("link", name="table6", exact=True).first
    link.wait_for(timeout=PATIENCE * 1000)
    assert link.evaluate("link => link.href") == f"{served.mlflow}/reports/tiny/table6.html"
    assert b"table6" in ask(f"{served.mlflow}/reports/tiny/table6.html")[1]
    artifacts = run.url.replace("?", "/artifacts?", 1)
    run.goto(artifacts)
    run.get_by_text("0.json").first.wait_for(timeout=PATIENCE * 1000)


@pytest.mark.slow
def test_an_experiment_has_columns_for_run_suite_seed_and_scale(
    visit: Open, served: Served, made: FakeResults
) -> None:
    root = made.root.parent
    views = MlflowRuns(f"sqlite:///{root}/mlflow/mlflow.db", root).views()
    page = visit("about:blank").context.new_page()  # MLflow's own page asks for what is not there
    page.goto(f"{served.mlflow}{views['evaluate']}", timeout=PATIENCE * 1000)
    page.get_by_text("tiny/diff/0").first.wait_for(timeout=PATIENCE * 1000)
    for column in ("run", "suite", "seed", "scale", "Duration"):
        header = page.get_by_role("columnheader", name=column, exact=True)
        header.first.wait_for(timeout=PATIENCE * 1000)


def test_requests_without_the_token_are_refused(served: Served, made: FakeResults) -> None:
    """Other users of the machine reach the ports; `run` is that of the one tracked job."""
    store = MlflowRuns(f"sqlite:///{made.root.parent}/mlflow/mlflow.db", made.root.parent)
    run = store.client.search_runs([store.experiment("evaluate")])[0].info.run_id
    mlflow, reports = (f"http://127.0.0.1:{served.port + further}" for further in (0, 1))
    delete, upload = "api/2.0/mlflow/runs/delete", "api/2.0/mlflow-artifacts/artifacts/x/y"
    for token in ("", "x/", f"x{served.token}/", f"{served.token[:-1]}/", "static-files/", "%2e/"):
        for method, path in (
            ("GET", ""), ("GET", "health"), ("GET", "version"),
            ("POST", delete), ("POST", f"ajax-{delete}"),
            ("PUT", upload), ("PUT", f"ajax-{upload}"),
            ("POST", "api/2.0/mlflow/runs/search"), ("POST", "graphql"),
            ("GET", f"get-artifact?path=0.json&run_uuid={run}"),
            ("GET", "static-files/favicon.ico"),
            ("POST", f"ajax-api/2.0/mlflow/upload-artifact?path=x&run_uuid={run}"),
        ):  # fmt: skip
            output = ask(f"{mlflow}/{token}{path}", method)
            assert output[0] == 403 and b"make ui" in output[1], (token, path, output)
        for path in ("", "tiny/", "tiny/index.html", "run/x"):
            assert status(f"{reports}/{token}{path}") == 403
    assert store.client.get_run(run).info.lifecycle_stage == "active"


def test_artifacts_are_shown_but_cannot_be_uploaded_in_place(
    served: Served, made: FakeResults
) -> None:
    store = MlflowRuns(f"sqlite:///{made.root.parent}/mlflow/mlflow.db", made.root.parent)
    run = store.client.search_runs([store.experiment("evaluate")])[0].info.run_id
    for path in ("api", "ajax-api"):
        address = f"{served.mlflow}/{path}/2.0/mlflow-artifacts/artifacts/x/y"
        assert ask(address, "PUT")[0] == 503  # MLflow: artifacts are not served
    result = made.root / "evaluations/validation_slices/diff/0.json"
    response = ask(f"{served.mlflow}/get-artifact?path=0.json&run_uuid={run}")
    assert response == (200, result.read_bytes())


def test_no_other_user_can_read_the_token(served: Served) -> None:
    ui = psutil.Process(served.process)
    processes = [ui, *ui.children(recursive=True)]
    assert len(processes) >= 2
    assert not any(served.token in word for process in processes for word in process.cmdline())
    (address,) = {process.environ().get(REPORTS_VARIABLE) for process in processes[1:]}
    assert address == served.reports


def test_nothing_but_reports_is_served(served: Served, made: FakeResults) -> None:
    address = served.reports
    assert status(f"{address}/tiny/index.html") == status(f"{address}/") == 200
    assert (made.root / "verdicts.json").is_file()
    for path in ("tiny/../verdicts.json", "tiny/%2e%2e/verdicts.json", "tiny/..%2fverdicts.json"):
        assert status(f"{address}/{path}") == 404
    for path in ("x%0d%0aSet-Cookie:a=b", "%5Cevil.example", "%C4%80", "%00/", "tiny/%00.html"):
        assert status(f"{address}/{path}") == 404  # and nothing of it is sent back
    assert status(f"{address}/run/no-such-job") == status(f"{address}/run/a'%20or%201") == 404
    assert status(f"{address}/tiny/", Host="elsewhere.example") == 403


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_repeated_signals_leave_no_mlflow_process(
    served: Served, made: FakeResults, number: signal.Signals
) -> None:
    root, port = made.root.parent, free_pair()
    words = ["ui", "--results", str(root), "--tracking", f"sqlite:///{root}/mlflow/mlflow.db"]
    words += ["--port", str(port)]
    # Behind nohup, or a shell in the background, the signal would be ignored.
    heard = "import os, signal, sys; signal.signal(int(sys.argv[1]), signal.SIG_DFL); "
    python = ["-c", f"{heard}os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"]
    running = subprocess.Popen(
        [sys.executable, *python, str(int(number)), "-m", "difftransformer", *words],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    output = running.stdout.readline()
    assert "/tiny/" in output and served.token not in output  # each start has a token of its own
    (mlflow,) = psutil.Process(running.pid).children()
    try:
        end = time.monotonic() + PATIENCE
        while running.poll() is None:  # at the very end Python itself hears no signal any more
            assert time.monotonic() < end, "it does not end"
            running.send_signal(number)
            time.sleep(0.02)
        assert not mlflow.is_running()
    finally:
        running.kill()
        if mlflow.is_running():
            os.killpg(mlflow.pid, signal.SIGKILL)


def test_a_port_in_use_gives_a_one_line_error(served: Served, made: FakeResults) -> None:
    words = ["-m", "difftransformer", "ui", "--results", str(made.root.parent)]
    for port in (served.port + 1, served.port):  # of MLflow the reports', then both
        ended = subprocess.run(
            [sys.executable, *words, "--port", str(port)],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert ended.returncode == 2 and ended.stderr.count("\n") == 1
        assert re.match(r"error: port \d+: address already in use; choose another", ended.stderr)
