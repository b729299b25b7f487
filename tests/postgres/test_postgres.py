"""A team's tracking: an MLflow server on PostgreSQL with users and S3, and mistakes about it.

`make test-postgres` runs this; the ordinary suite leaves it out.
"""

import re
import time
from pathlib import Path

import pytest
from outages import free_port
from own_postgres import Postgres
from small_workflow import CANARY

from difftransformer.provenance.reporting import reporting
from difftransformer.provenance.sync import initialise_tracking

pytestmark = pytest.mark.postgres


MISTAKES = {
    "a wrong password": ("mlflow", {"PGPASSWORD": f"{CANARY}-wrong"}, "password are refused"),
    "no password": ("mlflow", {"PGPASSWORD": ""}, "password are refused"),
    "no such database": ("nosuch", {}, "there is no such database; make it (createdb)"),
}


def said_at_start(uri: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """All that `initialise_tracking` says."""
    capfd.readouterr()
    started = time.monotonic()
    try:
        with reporting(folder / "log"):
            initialise_tracking(uri, folder / "ready.json", folder)
    except SystemExit as end:
        assert end.code == 2
        assert not (folder / "ready.json").exists()
    assert time.monotonic() - started < 15
    said = capfd.readouterr().err.strip()
    assert CANARY not in said + (folder / "log").read_text()
    return said


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_about_a_database_is_one_line(
    case: str,
    postgres: Postgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    database, variables, expected = MISTAKES[case]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    said = said_at_start(postgres.address(database), tmp_path, capfd)
    assert re.fullmatch(r"error: tracking store postgresql://\*\*\*@127[^\n]*", said), said
    assert expected in said


def test_a_password_that_a_server_refuses_is_one_line(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", f"{CANARY}-wrong")
    said = said_at_start(server, tmp_path, capfd)
    assert re.fullmatch(r"error: tracking store http://127[^\n]*password are refused[^\n]*", said)


def test_a_database_that_is_down_stops_no_start(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    address = f"postgresql://team:{CANARY}-in-address@127.0.0.1:{free_port()}/mlflow"
    said = said_at_start(address, tmp_path, capfd)
    assert re.fullmatch(r"warning: tracking: [^\n]* \(nothing listens there\)[^\n]*", said), said
    assert (tmp_path / "ready.json").exists()
