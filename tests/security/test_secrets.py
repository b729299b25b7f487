"""Secrets of the environment reach no log, result, table, report, store, history or message."""

import json
import logging
import re
import socket
from html import escape
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import quote, quote_plus

import pytest
import yaml
from finished_work import Work, finish
from small_workflow import CANARY, SECRETS, Checkout
from typer.testing import CliRunner

from difftransformer.cli import app, ui
from difftransformer.errors import ConfigError
from difftransformer.provenance.command_errors import report_errors
from difftransformer.provenance.masking import bare_address, mask_addresses, mask_secrets
from difftransformer.tracking import mlflow_runs
from difftransformer.tracking.address import check_uri, resolve_uri
from difftransformer.tracking.sync import sync_tracking


@pytest.fixture
def canaries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name, secret)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://user:{CANARY}@127.0.0.1:9/x")


@pytest.mark.usefixtures("canaries")
def test_jobs_write_no_secret_and_take_corpora_of_any_name(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    work: Work = finish(tmp_path, repository / "config")
    evil = "a b'\"$(touch gone)`touch gone`;touch gone.jsonl"
    (tmp_path / "corpus" / "text.jsonl").rename(tmp_path / "corpus" / evil)
    assert work.tokenize().status == 0
    assert not list(tmp_path.rglob("gone"))
    ended = work.pretrain("--log", "logs/pretrain.log")
    assert ended.status == 0, ended.stderr
    assert CANARY not in ended.stderr
    histories = list(tmp_path.rglob("*.jsonl"))
    assert any("state" in path.parts for path in histories), "nothing was tracked"
    assert not with_a_canary(tmp_path)


def test_a_whole_workflow_writes_no_secret(finished: Checkout) -> None:
    written = {path.suffix for path in (finished.folder / "results").rglob("*")}
    assert {".log", ".json", ".csv", ".md", ".tex", ".html", ".svg", ".db"} <= written
    ended = finished.snakemake("--dry-run", "--printshellcmds", "--forceall")
    assert CANARY not in ended.stdout + ended.stderr
    assert not with_a_canary(finished.folder)


def with_a_canary(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if CANARY.encode() in path.read_bytes()]


@pytest.mark.usefixtures("canaries")
def test_logs_mask_what_an_exception_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit), report_errors(tmp_path / "log"):
        logging.getLogger("difftransformer").warning("key %s", f"{CANARY}-HF_TOKEN")
        raise RuntimeError(f"no answer from http://user:{CANARY}@host with {CANARY}-OPENAI_API_KEY")
    for output in (capsys.readouterr().err, (tmp_path / "log").read_text()):
        assert "no answer from http://***@host with <OPENAI_API_KEY>" in output
        assert "key <HF_TOKEN>" in output
        assert CANARY not in output


@pytest.mark.parametrize(
    "address",
    [
        f"htp://user:{CANARY}@host", f"htp://user:p@{CANARY}/x@host", f"htp://{CANARY}@host/a",
        f"htp://host/x?password={CANARY}", f"htp://host/x?a=b&access_token={CANARY}&c=d",
    ],
)  # fmt: skip
def test_a_refused_address_is_shown_without_its_password(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_uri(address)
    assert CANARY not in str(caught.value)
    assert "htp://" in str(caught.value)


USERS = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"


@pytest.mark.parametrize(
    "address",
    [
        f"https://{CANARY}@host", f"https://{CANARY}:@host", f"https://:{CANARY}@host",
        f"https://user:{CANARY}@host", f"https://user:p/{CANARY}@host",
        f"https://user:p?{CANARY}@host", f"https://user:p#{CANARY}@host",
        f"https://user%3A{CANARY}%40host", f"https://user%253A{CANARY}%2540host",
        f"HTTPS://user:{CANARY}@host", f"https:user:{CANARY}@host", f"{CANARY}@host",
        f"https://host?access_token={CANARY}", f"https://host/a?b=c&TOKEN={CANARY}",
        f"https://host?passwd={CANARY}", f"https://host?{CANARY}",
        f"https://host?api%5Fkey%3D{CANARY}", f"https://host;sig={CANARY}",
        f"https://host/#{CANARY}", f"http://host/#access_token={CANARY}",
        "postgresql://user@host/mlflow", f"postgresql+psycopg2://user:{CANARY}@host/mlflow",
        f"postgresql:///mlflow?user=user&pass={CANARY}", f"mysql://host/db?sslkey={CANARY}",
        f"mysql://host/db?auth={CANARY}", f"postgresql://host/db?credential={CANARY}",
        f"mssql+pyodbc:///?odbc_connect=SERVER%3Dh%3BPWD%3D{CANARY}",
        f"postgresql://host/db?password%3d{CANARY}", f"sqlite:///x.db?key={CANARY}",
        f"sqlite+pysqlcipher://:{CANARY}@/x.db", f"databricks://{CANARY}@profile",
    ],
)  # fmt: skip
def test_addresses_with_secrets_are_refused_in_the_configuration(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_uri(address, "config.yaml: tracking.uri")
    message = str(caught.value)
    assert message.startswith(
        "config.yaml: tracking.uri: the address has a user, a password, a token"
    )
    assert (USERS if address.lower().startswith("http") else "MLFLOW_TRACKING_URI") in message
    assert CANARY not in message


@pytest.mark.parametrize(
    "address",
    [
        "off", "sqlite:///x.db", "sqlite:////data/a@b/key=1/x#2.db", "sqlite:///x.db?timeout=20",
        "http://127.0.0.1:5000", "https://mlflow.example.org/a/tracking/", "databricks",
        "databricks://profile", "postgresql://host:5432/mlflow", "postgresql:///mlflow?host=/run",
        "postgresql://host/db?sslmode=require&keepalives=1&options=-csearch_path%3Da",
    ],
)  # fmt: skip
def test_addresses_without_secrets_are_accepted(address: str) -> None:
    check_uri(address, "config.yaml: tracking.uri")


@pytest.mark.parametrize("command", ["ui", "sync-tracking"])
def test_commands_that_need_no_plan_refuse_such_an_address_too(
    command: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    project = yaml.safe_load((repository / "config" / "config.yaml").read_text())
    project["tracking"] = {"uri": f"https://{CANARY}@host"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(project))
    ended = CliRunner().invoke(app, [command, "--config-dir", str(tmp_path)])
    assert ended.exit_code == 2
    assert "config.yaml: tracking.uri: the address has" in ended.stderr
    assert CANARY not in ended.output


@pytest.mark.parametrize(
    "address",
    [
        f"http://{CANARY}@127.0.0.1:9", f"http://user:p/{CANARY}@127.0.0.1:9",
        f"http://127.0.0.1:9/?access_token={CANARY}", f"http://127.0.0.1:9/?sig={CANARY}",
        f"postgresql://user:{CANARY}@127.0.0.1:9/mlflow", f"http://127.0.0.1:9/?auth={CANARY}",
    ],
)  # fmt: skip
def test_an_address_in_the_environment_may_have_one_which_is_written_nowhere(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setattr(mlflow_runs, "MlflowRuns", Mock(side_effect=ConnectionError(address)))
    assert sync_tracking(tmp_path).reason
    assert "does not answer" in caplog.text and CANARY not in caplog.text
    assert CANARY not in mask_secrets(f"the driver says {address} is wrong")
    assert CANARY not in bare_address(address)


def test_no_command_line_has_the_password_of_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Mock()
    monkeypatch.setattr("subprocess.Popen", start)
    monkeypatch.setenv("MLFLOW_BACKEND_STORE_URI", "sqlite:///another.db")
    address = f"postgresql://user:{CANARY}@host/mlflow"
    ui._start(address, tmp_path, socket.socket(), "http://127.0.0.1:5001")
    assert CANARY not in " ".join(start.call_args.args[0])
    assert start.call_args.kwargs["env"]["MLFLOW_BACKEND_STORE_URI"] == address


def test_ordinary_text_stays() -> None:
    text = "lr 1e-3 at https://host/path, mail a@b.c"
    assert mask_addresses(text) == text
    assert mask_secrets("tokens 12") == "tokens 12"


def test_folders_of_the_shell_and_settings_of_libraries_are_no_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (
        *("PWD", "OLDPWD", "TOKENIZERS_PARALLELISM", "PATH", "PYTHONPATH", "PATTERN", "SIGNAL"),
        *("GIT_AUTHOR_NAME", "XAUTHORITY", "DESIGN"),
    ):
        monkeypatch.setenv(name, "/models/llama")
        assert mask_secrets("/models/llama/a.json") == "/models/llama/a.json"
        monkeypatch.delenv(name)
    for name in (
        "DB_PWD",
        "PWD_OF_DB",
        "HF_TOKEN",
        "TOKEN",
        "S3_SECRET",
        "MY_PASSWORD",
        "LDAPBINDPWD",
        "GITHUB_PAT",
        "PAT",
        "MY_PAT_2",
        "CI_JWT",
        "MYJWT",
        "OPENAI_AUTH",
        "HTTP_AUTHORIZATION",
        "OAUTH_HEADER",
        "AZURE_SIG",
        "REQUEST_SIGNATURE",
        "BLOB_SAS",
        "DB_PASS",
        "GPG_PASSPHRASE",
        "SESSION_COOKIE",
        "BEARER",
        "AWS_CREDS",
    ):
        monkeypatch.setenv(name, CANARY)
        assert mask_secrets(CANARY) == f"<{name}>"
        monkeypatch.delenv(name)


def test_blanks_around_a_secret_and_one_inside_another_hide_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_KEY", CANARY)
    monkeypatch.setenv("B_TOKEN", f" {CANARY}-tail\n")
    assert mask_secrets(f"'Bearer {CANARY}-tail\\n'") == "'Bearer <B_TOKEN>\\n'"
    assert mask_secrets(f"Bearer {CANARY}") == "Bearer <A_KEY>"


SECRET = "p@ss/\"w'ör\\d& 7<x>"


@pytest.mark.parametrize(
    "form",
    [
        SECRET, repr(SECRET), ascii(SECRET), repr(SECRET.encode()), repr([SECRET]),
        json.dumps(SECRET), json.dumps(SECRET, ensure_ascii=False), json.dumps(json.dumps(SECRET)),
        repr(repr(SECRET)), quote(SECRET), quote(SECRET, safe=""), quote_plus(SECRET),
        quote(SECRET, safe="").lower(), quote(SECRET, safe="@:&"), escape(SECRET),
        SECRET.replace(" ", "\n"),
    ],
)  # fmt: skip
def test_a_secret_is_masked_in_every_form_that_libraries_print(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", f"{SECRET}\n")
    masked = mask_secrets(f"cannot log in with ({form}) at all")
    assert re.fullmatch(r"cannot log in with \(\W*<DB_PASSWORD>\W*\) at all", masked) or (
        form == repr(SECRET.encode()) and "(b'<DB_PASSWORD>')" in masked
    )


def test_each_line_of_a_long_secret_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["-----BEGIN PRIVATE KEY-----", "MIIEvQIBADANBgkqhkiG", "9w0BAQEFAASCBKcwggSj"]
    monkeypatch.setenv("SSH_KEY", "\n".join(lines))
    assert mask_secrets(" ".join(lines)) == "<SSH_KEY>"
    assert mask_secrets(f"line 2 is {lines[1]}, wrong") == "line 2 is <SSH_KEY>, wrong"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"),
        ("{'authorization': 'token abcdef123'}", "{'authorization': 'token ***'}"),
        ("sent Bearer abcdefgh12345678.x-y", "sent Bearer ***"),
        ("got eyJhbGciOiJI.eyJzdWIi.c2lnbmF0, expired", "got ***, expired"),
        ("https://h/x?sv=1&sig=ab%2Fc&se=2", "https://h/x?sv=1&sig=***&se=2"),
        ("https://h/x?jwt=abc", "https://h/x?jwt=***"),
        ("https://h/x#auth=abc", "https://h/x#auth=***"),
        ("https://user%3Apass%40h/x", "https://***@h/x"),
        ("the author=x of basic pages, authorization of users, a signature", None),
    ],
)
def test_values_labeled_as_secrets_are_masked_without_the_environment(
    text: str, masked: str | None
) -> None:
    assert mask_secrets(text) == (masked or text)


def test_passwords_in_addresses_of_the_environment_are_masked_alone_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgresql://user:{CANARY}%21@host/db")
    monkeypatch.setenv("BUCKET", f"https://host/b?sv=1&sig={CANARY}-sig")
    assert mask_secrets(f"refused: {CANARY}! of user") == "refused: <DATABASE_URL> of user"
    assert mask_secrets(f"refused: {CANARY}-sig") == "refused: <BUCKET>"
    monkeypatch.setenv("PROXY", f"http://{CANARY}-long@host")
    assert mask_secrets(f"refused: {CANARY}-long") == "refused: <PROXY>"
