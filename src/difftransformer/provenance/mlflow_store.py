"""Opening a store of MLflow: a database answers, a SQLite file is made whole."""

import uuid
from pathlib import Path

import sqlalchemy
from mlflow import MlflowClient

from difftransformer.machine.locks import locked
from difftransformer.provenance.atomic import replacing, write_text
from difftransformer.provenance.spool import forget_sent, is_database, sqlite_file


def open_store(uri: str, root: Path) -> tuple[MlflowClient, str]:
    """Open the store at ``uri``, made first where it is a SQLite file that is not there.

    Returns:
        What calls the store, and the id of the results folder ``root``.
    """
    is_file = uri.startswith("sqlite:")
    if is_database(uri) and not is_file:
        _connect_once(uri)
    # Processes that make one SQLite file together all crash.
    with locked(root / "mlflow" / "lock"):
        if is_file and _make_database(uri):
            forget_sent(root, uri)  # what was sent to a file before it is gone
        client = MlflowClient(tracking_uri=uri)
        if is_file:
            client.search_experiments(max_results=1)
        return client, _workspace(root / "mlflow" / "workspace")


def _connect_once(uri: str) -> None:
    """Raise what the database answers; mlflow would ask it ten times in 100 s, aloud."""
    engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool)
    engine.connect().close()


def _make_database(uri: str) -> bool:
    """Make a SQLite file whole: a migration that is killed halfway can never be taken up again.

    False when it is there already.
    """
    if (path := sqlite_file(uri)).exists():
        return False
    for leftover in path.parent.glob(f".{path.stem}.*.partial{path.suffix}*"):
        leftover.unlink()
    with replacing(path) as aside:
        scheme, _, name = uri.partition("///")
        whole = f"{scheme}///{aside}" + "".join(name.partition("?")[1:])
        client = MlflowClient(tracking_uri=whole)
        for default in client.search_experiments():
            client.delete_experiment(default.experiment_id)  # it would stay empty
    return True


def _workspace(path: Path) -> str:
    """Id of a results folder, made once."""
    if not path.exists():
        write_text(path, uuid.uuid4().hex + "\n")
    return path.read_text().strip()
