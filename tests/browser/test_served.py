"""`make ui`: from a cell to its run in MLflow, in the running UI."""

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
from typing import Any

import psutil
import pytest
from fake_results import FakeResults

from difftransformer.provenance.mlflow_sink import MlflowSink
from difftransformer.provenance.result import read_result
from difftransformer.provenance.sync import sync_tracking
from difftransformer.provenance.tracking import start_job

Open = Callable[..., Any]
PATIENCE = 90


@pytest.fixture(scope="module")
def ports(made: FakeResults, site: Path) -> Iterator[tuple[int, int]]:
    """Ports of MLflow and of the reports, both running; one job of a cell is tracked."""
    root = made.root.parent
    result = read_result(made.root / "evaluations/validation_slices/diff/0.json")
    store = f"sqlite:///{root}/mlflow/mlflow.db"
    with start_job(
        "evaluate", "tiny/diff/0", result.job_id, made.root / "state" / "evaluate", {"n": 2},
        {"run": "diff", "suite": "validation_slices", "seed": 0, "scale": "tiny"}, store,
    ) as tracker:  # fmt: skip
        tracker.log_metrics({"loss": 3.25}, 1)
    assert not sync_tracking(root, store).unsent
    port = free_pair()
    words = ["difftransformer", "ui", "--results", str(root), "--tracking", store]
    running = subprocess.Popen(
        [sys.executable, "-m", *words, "--port", str(port)], stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert f"http://127.0.0.1:{port + 1}/tiny/" in running.stdout.readline()
    yield port, port + 1
    running.send_signal(signal.SIGTERM)
    assert running.wait(PATIENCE) == 0
    with socket.socket() as probe:  # MLflow is gone with it
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def free_pair() -> int:
    """A port that is free, and so is the next."""
    for port in range(20_000 + os.getpid() % 20_000, 60_000, 7):
        with socket.socket() as one, socket.socket() as two:
            try:
                one.bind(("127.0.0.1", port))
                two.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


def status(address: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address, headers=headers), timeout=PATIENCE
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_cell_leads_to_its_run_in_mlflow(visit: Open, ports: tuple[int, int]) -> None:
    mlflow, reports = ports
    page = visit(f"http://127.0.0.1:{reports}/tiny/table6.html")
    page.click("[data-cell='diff/valid']")
    page.locator("#panel summary").first.click()
    with page.context.expect_page() as opened:
        page.click("#panel a")
    run = opened.value
    run.wait_for_url(re.compile(rf":{mlflow}/#/experiments/\d+/runs/\w+"), timeout=PATIENCE * 1000)
    run.get_by_text("tiny/diff/0").first.wait_for(timeout=PATIENCE * 1000)


@pytest.mark.slow
def test_an_experiment_is_shown_by_what_tells_its_runs_apart(
    visit: Open, ports: tuple[int, int], made: FakeResults
) -> None:
    root = made.root.parent
    views = MlflowSink(f"sqlite:///{root}/mlflow/mlflow.db", root).views()
    page = visit("about:blank").context.new_page()  # MLflow's own page asks for what is not there
    with socket.socket() as probe:
        while probe.connect_ex(("127.0.0.1", ports[0])):
            page.wait_for_timeout(500)
    page.goto(f"http://127.0.0.1:{ports[0]}{views['evaluate']}")
    page.get_by_text("tiny/diff/0").first.wait_for(timeout=PATIENCE * 1000)
    for column in ("run", "suite", "seed", "scale", "Duration"):
        header = page.get_by_role("columnheader", name=column, exact=True)
        header.first.wait_for(timeout=PATIENCE * 1000)


def test_nothing_but_reports_is_served(ports: tuple[int, int], made: FakeResults) -> None:
    address = f"http://127.0.0.1:{ports[1]}"
    assert status(f"{address}/tiny/index.html") == status(f"{address}/") == 200
    assert (made.root / "verdicts.json").is_file()
    for path in ("tiny/../verdicts.json", "tiny/%2e%2e/verdicts.json", "tiny/..%2fverdicts.json"):
        assert status(f"{address}/{path}") == 404
    for path in ("x%0d%0aSet-Cookie:a=b", "%5Cevil.example", "%C4%80", "%00/", "tiny/%00.html"):
        assert status(f"{address}/{path}") == 404  # and nothing of it is sent back
    assert status(f"{address}/run/no-such-job") == status(f"{address}/run/a'%20or%201") == 404
    assert status(f"{address}/tiny/", Host="elsewhere.example") == 403


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_that_come_again_and_again_leave_no_mlflow_behind(
    ports: tuple[int, int], made: FakeResults, number: signal.Signals
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
    assert "/tiny/" in running.stdout.readline()
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


def test_a_port_in_use_is_one_line(ports: tuple[int, int], made: FakeResults) -> None:
    words = ["-m", "difftransformer", "ui", "--results", str(made.root.parent)]
    for port in (ports[1], ports[0]):  # of MLflow the reports', then both
        ended = subprocess.run(
            [sys.executable, *words, "--port", str(port)],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert ended.returncode == 2 and ended.stderr.count("\n") == 1
        assert re.match(r"error: port \d+: address already in use; give another", ended.stderr)
