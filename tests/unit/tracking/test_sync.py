"""A store that does not answer, or cannot be made; tests/postgres has real ones fail."""

import re
import sys
from pathlib import Path

import pytest

from difftransformer.tracking.run_context import start_run
from difftransformer.tracking.sync import SyncReport, reason_of, sync_tracking


def test_a_server_is_asked_though_there_is_nothing_to_send(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = "http://user:canary-7f3a91@127.0.0.1:9"
    report = sync_tracking(tmp_path, address)
    assert report.unsent == () and report.reason == "nothing listens at this address"
    assert "127.0.0.1:9 does not answer (nothing listens at this address)" in caplog.text
    assert "canary" not in caplog.text


def test_where_tracking_is_off_nothing_is_asked(tmp_path: Path) -> None:
    assert sync_tracking(tmp_path, "off") == SyncReport()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("postgresql://user@127.0.0.1:9/mlflow", r"psycopg2 is not installed: pip install .*post"),
        ("postgresql://user@127.0.0.1:port/mlflow", "not an address of a database"),
        ("sqlite:///{folder}/file/mlflow.db", "file"),
    ],
)
def test_an_address_that_cannot_work_keeps_what_there_is_to_send(
    address: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    (tmp_path / "file").touch()
    with start_run("table", "a", "j", tmp_path / "state", {}, {}, "sqlite:///unused.db"):
        pass
    report = sync_tracking(tmp_path, address.format(folder=tmp_path))
    assert report.unsent == (tmp_path / "state",)
    assert re.search(reason, report.reason)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ('FATAL:  password authentication failed for user "mlflow"', "refused"),
        ("failed with error code 401 != 200. Response body: 'You are not", "refused"),
        ("failed with error code 403 != 200. Response body: 'Permission", "MANAGE"),
        ('FATAL:  database "nosuch" does not exist', "createdb"),
        ("invalid literal for int() with base 10: 'abc'", "postgresql://<user>@<host>"),
        ("port 9 failed: Connection refused\n\tIs the server running", "nothing listens"),
        (
            "(Caused by ResponseError('too many 503 error responses'))",
            "internal error of the server",
        ),
        ("a cosmic ray", "RuntimeError: a cosmic ray"),
    ],
)
def test_what_a_store_says_is_one_line(output: str, reason: str) -> None:
    result = reason_of(RuntimeError(output))
    assert reason in result and "\n" not in result
