"""Where runs are tracked, and what a job tracks where there is no store for it."""

from pathlib import Path

import pytest

from difftransformer.errors import ConfigError
from difftransformer.provenance.masking import mask_addresses
from difftransformer.tracking.address import resolve_uri
from difftransformer.tracking.run_context import start_run


def test_no_database_is_created_on_an_ephemeral_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DIFFTRANSFORMER_DISK", "passing")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    root = tmp_path / "results"
    store = resolve_uri(None, root)
    with start_run("pretrain", "in a pod", "j", root / "state", {}, {}, store) as tracker:
        tracker.log_metrics({"loss": 1.0}, 1)
    assert not root.exists() and "no MLFLOW_TRACKING_URI is set" in caplog.text


def test_address_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert resolve_uri(None) == f"sqlite:///{tmp_path}/results/mlflow/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert resolve_uri(None) == "http://127.0.0.1:5000"
    assert resolve_uri("sqlite:///x.db") == "sqlite:///x.db"
    assert resolve_uri("off") is None
    for bad in ("file:///mlruns", "mlruns", "htp://x:pw@host"):
        with pytest.raises(ConfigError, match="tracking uri") as caught:
            resolve_uri(bad)
        assert "pw" not in str(caught.value)
    assert mask_addresses("https://user:pw@host/x") == "https://***@host/x"
