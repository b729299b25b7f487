"""One PostgreSQL, one S3 and one MLflow server before them, for all tests."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from outages import free_port, mlflow_server
from own_postgres import Postgres, missing
from small_workflow import CANARY

SECRETS = {
    name: f"{CANARY}-{name}"
    for name in ("PGPASSWORD", "MLFLOW_TRACKING_PASSWORD", "AWS_SECRET_ACCESS_KEY")
}
"""In the environment alone; every log is searched for them."""
BUCKET = "runs"


@pytest.fixture(scope="session", autouse=True)
def environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        patch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    if lacking := missing():
        pytest.fail(lacking)
    pytest.importorskip("psycopg2", reason="pip install 'difftransformer[postgres]'")
    with (
        tempfile.TemporaryDirectory(prefix="postgres") as folder,
        Postgres(Path(folder), SECRETS["PGPASSWORD"]) as running,
    ):
        yield running


@pytest.fixture(scope="session")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of whoever reads and writes the bucket."""
    import boto3
    from botocore.exceptions import BotoCoreError

    port = free_port()
    environment = {
        "MLFLOW_S3_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "team",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (tmp_path_factory.mktemp("s3") / "log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            deadline = time.monotonic() + 60
            while True:
                try:
                    boto3.client("s3").create_bucket(Bucket=BUCKET)
                    break
                except BotoCoreError:
                    assert process.poll() is None and time.monotonic() < deadline
                    time.sleep(0.2)
        yield environment
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="session")
def server(
    postgres: Postgres, bucket: dict[str, str], tmp_path_factory: pytest.TempPathFactory
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
    settings = bucket | {
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
