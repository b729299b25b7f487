"""A real MLflow store on SQLite, made once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from difftransformer.tracking.mlflow_runs import MlflowRuns
from difftransformer.tracking.views import STAGES


@pytest.fixture(scope="session")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("store")
    address = f"sqlite:///{root}/mlflow/mlflow.db"
    runs = MlflowRuns(address, root)
    for stage in STAGES:
        runs.experiment(stage)
    return address


@pytest.fixture(scope="session")
def client(uri: str) -> MlflowClient:
    return MlflowClient(tracking_uri=uri)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test is a results folder of its own, in a store that they share."""
    monkeypatch.chdir(tmp_path)
    yield
