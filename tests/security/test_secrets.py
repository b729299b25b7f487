"""Secrets of the environment reach no log, result, table, report, store, journal or message."""

import logging
from pathlib import Path
from unittest.mock import Mock

import pytest
from finished_work import Work, finish
from small_workflow import CANARY, SECRETS, Checkout

from difftransformer.cli import ui
from difftransformer.errors import ConfigError
from difftransformer.provenance.reporting import displayed, masked, reporting
from difftransformer.provenance.tracking import resolve_uri


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
    assert work.tokenise().status == 0
    assert not list(tmp_path.rglob("gone"))
    ended = work.pretrain("--log", "logs/pretrain.log", "--seed", "1", tracking="")
    assert ended.status == 0, ended.stderr
    assert CANARY not in ended.stderr
    journals = list(tmp_path.rglob("*.jsonl"))
    assert any("state" in path.parts for path in journals), "nothing was tracked"
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
    with pytest.raises(SystemExit), reporting(tmp_path / "log"):
        logging.getLogger("difftransformer").warning("key %s", f"{CANARY}-HF_TOKEN")
        raise RuntimeError(f"no answer from http://user:{CANARY}@host with {CANARY}-OPENAI_API_KEY")
    for said in (capsys.readouterr().err, (tmp_path / "log").read_text()):
        assert "no answer from http://***@host with <OPENAI_API_KEY>" in said
        assert "key <HF_TOKEN>" in said
        assert CANARY not in said


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


def test_no_command_line_has_the_password_of_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Mock()
    monkeypatch.setattr("subprocess.Popen", start)
    monkeypatch.setenv("MLFLOW_BACKEND_STORE_URI", "sqlite:///another.db")
    address = f"postgresql://user:{CANARY}@host/mlflow"
    ui._start(address, 5000)
    assert CANARY not in " ".join(start.call_args.args[0])
    assert start.call_args.kwargs["env"]["MLFLOW_BACKEND_STORE_URI"] == address


def test_ordinary_text_stays() -> None:
    text = "lr 1e-3 at https://host/path, mail a@b.c"
    assert displayed(text) == text
    assert masked("tokens 12") == "tokens 12"


def test_folders_of_the_shell_and_settings_of_libraries_are_no_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PWD", "OLDPWD", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "/home/ada/work")
        assert masked("/home/ada/work/a.json") == "/home/ada/work/a.json"
        monkeypatch.delenv(name)
    for name in (
        "DB_PWD",
        "PWD_OF_DB",
        "HF_TOKEN",
        "TOKEN",
        "S3_SECRET",
        "MY_PASSWORD",
        "LDAPBINDPWD",
    ):
        monkeypatch.setenv(name, CANARY)
        assert masked(CANARY) == f"<{name}>"
        monkeypatch.delenv(name)


def test_blanks_around_a_secret_and_one_inside_another_hide_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_KEY", CANARY)
    monkeypatch.setenv("B_TOKEN", f" {CANARY}-tail\n")
    assert masked(f"'Bearer {CANARY}-tail\\n'") == "'Bearer <B_TOKEN>\\n'"
    assert masked(f"Bearer {CANARY}") == "Bearer <A_KEY>"
