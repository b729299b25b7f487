"""What stores say, and what is made of it; tests/postgres has real ones say it."""

import sys
from pathlib import Path

import pytest

from difftransformer.errors import ConfigError
from difftransformer.provenance.refusals import refusal_of
from difftransformer.provenance.sync import initialise_tracking


@pytest.mark.parametrize(
    ("said", "reason", "mistake"),
    [
        ('FATAL:  password authentication failed for user "mlflow"', "refused", True),
        ("failed with error code 401 != 200. Response body: 'You are not", "refused", True),
        ("failed with error code 403 != 200. Response body: 'Permission", "MANAGE", True),
        ('FATAL:  database "nosuch" does not exist', "createdb", True),
        ("invalid literal for int() with base 10: 'abc'", "postgresql://<user>@<host>", True),
        ("port 9 failed: Connection refused\n\tIs the server running", "nothing listens", False),
        ("(Caused by ResponseError('too many 503 error responses'))", "the server has", False),
        ("a cosmic ray", "RuntimeError: a cosmic ray", False),
    ],
)
def test_what_a_store_says_is_one_line(said: str, reason: str, mistake: bool) -> None:
    refusal = refusal_of(RuntimeError(said))
    assert refusal.mistake == mistake
    assert reason in refusal.reason
    assert "\n" not in refusal.reason


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("postgresql://user@127.0.0.1:9/mlflow", r"psycopg2 is not installed: pip install .*post"),
        ("postgresql://user@127.0.0.1:port/mlflow", "no address of a database; write postgresql"),
    ],
)
def test_a_driver_or_an_address_that_cannot_work_stops_the_first_job(
    address: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    with pytest.raises(ConfigError, match=said):
        initialise_tracking(address, tmp_path / "ready.json", tmp_path)
    assert not (tmp_path / "ready.json").exists()
