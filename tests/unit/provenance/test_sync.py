"""A store that is made ready before the first job, or cannot be."""

from pathlib import Path

import pytest

from difftransformer.errors import ConfigError
from difftransformer.provenance.sync import initialise_tracking, sync_tracking


def test_an_absent_server_does_not_stop_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = "http://user:canary-7f3a91@127.0.0.1:9"
    initialise_tracking(address, tmp_path / "ready.json", tmp_path)
    marker = (tmp_path / "ready.json").read_text()
    assert "127.0.0.1:9" in marker and "127.0.0.1:9" in caplog.text
    assert "canary" not in marker + caplog.text


def test_tracking_off_has_a_marker_too(tmp_path: Path) -> None:
    initialise_tracking("off", tmp_path / "ready.json")
    assert '"store": "off"' in (tmp_path / "ready.json").read_text()
    assert sync_tracking(tmp_path, "off").unsent == ()


def test_a_sqlite_file_that_cannot_be_made_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"tracking store .* cannot be made"):
        initialise_tracking(f"sqlite:///{tmp_path}/file/mlflow.db", tmp_path / "ready.json")
    assert not (tmp_path / "ready.json").exists()
