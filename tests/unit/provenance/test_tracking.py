"""What a job tracks where there is no store for it."""

from pathlib import Path

import pytest

from difftransformer.provenance.journal import Delivery
from difftransformer.provenance.tracking import start_job


def test_where_the_disk_goes_with_the_job_no_database_is_made_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DIFFTRANSFORMER_DISK", "passing")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    root = tmp_path / "results"
    with start_job(
        "pretrain", "in a pod", "j", root / "state", {}, {}, None, Delivery.here(root)
    ) as one:
        one.log_metrics({"loss": 1.0}, 1)
    assert not root.exists() and "no MLFLOW_TRACKING_URI is set" in caplog.text
