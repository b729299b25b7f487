"""One PostgreSQL, one S3 and one MLflow server before them, for all tests."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from attempts import Calls, calls
from outages import mlflow_server
from own_postgres import Postgres, missing
from s3_server import BUCKET, Server, serving
from small_workflow import CANARY, Checkout

SECRETS = {
    name: f"{CANARY}-{name}"
    for name in ("PGPASSWORD", "MLFLOW_TRACKING_PASSWORD", "AWS_SECRET_ACCESS_KEY")
}
"""In the environment alone; every log is searched for them."""


@pytest.fixture(scope="session", autouse=True)
def environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        patch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
        yield


@pytest.fixture(scope="session")
def reference_calls(finished: Checkout) -> Calls:
    return calls(finished.folder)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    if lacking := missing():
        pytest.fail(lacking, pytrace=False)
    with (
        tempfile.TemporaryDirectory(prefix="postgres") as folder,
        Postgres(Path(folder), SECRETS["PGPASSWORD"]) as running,
    ):
        yield running


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Where the MLflow server keeps artifacts; writers know nothing of it."""
    with serving(tmp_path_factory.mktemp("s3")) as running:
        running.client().create_bucket(Bucket=BUCKET)
        yield running


@pytest.fixture(scope="session")
def server(
    postgres: Postgres, s3: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Address of an MLflow server as docs/tracking.md starts one."""
    folder = tmp_path_factory.mktemp("server")
    users = folder / "auth.ini"
    users.write_text(
        "[mlflow]\n"
        "default_permission = MANAGE\n"
        f"database_uri = {postgres.create('mlflow_users')}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    settings = {
        "MLFLOW_S3_ENDPOINT_URL": s3.url,
        "AWS_ACCESS_KEY_ID": s3.key,
        "AWS_DEFAULT_REGION": "us-east-1",
        "MLFLOW_AUTH_CONFIG_PATH": str(users),
        "MLFLOW_AUTH_ADMIN_USERNAME": os.environ["MLFLOW_TRACKING_USERNAME"],
        "MLFLOW_AUTH_ADMIN_PASSWORD": SECRETS["MLFLOW_TRACKING_PASSWORD"],
        "MLFLOW_FLASK_SERVER_SECRET_KEY": f"{CANARY}-flask",
    }
    words = ("--app-name", "basic-auth", "--workers", "2")
    store, artifacts = postgres.create("mlflow"), f"s3://{BUCKET}/difftransformer"
    with mlflow_server(folder, store, artifacts, words, settings) as port:
        yield f"http://127.0.0.1:{port}"
    assert CANARY not in (folder / "server.log").read_text()
