"""Opening of the MLflow store: check that a database answers, create a SQLite file.

Each results folder has an id, and its runs have this id as a tag. A moved folder keeps its id, and
a copied folder gets a new id, so that neither changes the runs of the other. MLflow stores absolute
paths of artifacts; this module updates them for a moved or copied folder.
"""

import uuid
from pathlib import Path

import sqlalchemy
from mlflow import MlflowClient
from mlflow.store.tracking.dbmodels.models import SqlExperiment, SqlExperimentTag, SqlRun, SqlTag

from difftransformer.machine.locks import locked
from difftransformer.provenance.atomic import replacing
from difftransformer.provenance.layout import tracking_store
from difftransformer.tracking.address import is_database, sqlite_file
from difftransformer.tracking.history import SENT

PREFIX = "difftransformer"
WORKSPACE = f"{PREFIX}.workspace"
"""Tag with the id of a results folder. On a run it is the folder that wrote the run, on an
experiment it is the folder that contains the experiment's artifacts."""


def artifact_location(root: Path) -> str:
    """Return the URI of the folder with a results folder's artifacts, for stores in a database."""
    return (tracking_store(root) / "artifacts").resolve().as_uri()


def open_store(uri: str, root: Path) -> tuple[MlflowClient, str]:
    """Open the MLflow store at ``uri``; a missing SQLite file is created.

    Args:
        uri: Address of the store.
        root: The results folder.

    Returns:
        The MLflow client of the store, and the id of the results folder.
    """
    file = sqlite_file(uri)
    if is_database(uri) and file is None:
        # Raises the error of the database at once; mlflow would retry ten times in 100 s.
        sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool).connect().close()
    # Processes that create one SQLite file at the same time all crash.
    with locked(tracking_store(root) / "lock"):
        if file is not None and not file.exists():
            _make_database(uri, file)
            for sent in root.rglob(SENT):  # they are positions in a deleted SQLite file
                sent.unlink()
        client = MlflowClient(tracking_uri=uri)
        if file is not None:
            client.search_experiments(max_results=1)  # migrates the file of an older MLflow
        workspace = _workspace(tracking_store(root) / "workspace")
        if is_database(uri):
            _update_locations(uri, root, *workspace)
        return client, workspace[0]


def _make_database(uri: str, path: Path) -> None:
    """Create a SQLite file atomically, since an interrupted migration cannot be resumed."""
    with replacing(path) as aside:  # removes the temporary files of dead processes
        for name in ("journal", "wal", "shm"):  # left by a killed process with the same id
            aside.with_name(f"{aside.name}-{name}").unlink(missing_ok=True)
        scheme, _, name = uri.partition("///")
        temporary = f"{scheme}///{aside}" + "".join(name.partition("?")[1:])
        client = MlflowClient(tracking_uri=temporary)
        for default in client.search_experiments():
            client.delete_experiment(default.experiment_id)  # not used by any job


def _workspace(path: Path) -> tuple[str, str]:
    """Return the id of a results folder, and the id of the folder of which it is a copy, or "".

    Both ids are in a file, with the file's inode: the inode is kept by a move and changed by a
    copy.
    """
    words = path.read_text().split() if path.exists() else []
    if len(words) > 1 and words[1] == str(path.stat().st_ino):
        return words[0], "".join(words[2:])
    workspace, original = uuid.uuid4().hex, "".join(words[:1])
    with replacing(path) as aside:
        aside.touch()
        aside.write_text(f"{workspace} {aside.stat().st_ino} {original}\n")
    return workspace, original


def _update_locations(uri: str, root: Path, workspace: str, original: str) -> None:
    """Update the artifact locations of a results folder that was moved or copied.

    Runs in a SQLite file that was copied with its folder get the id of the copied folder.
    """
    file, location = sqlite_file(uri), artifact_location(root)
    engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool)
    if not sqlalchemy.inspect(engine).has_table(SqlExperimentTag.__tablename__):
        return  # a new database
    is_copy = original and file and file.resolve().is_relative_to(root.resolve())
    with engine.begin() as store:
        for tags in (SqlTag, SqlExperimentTag) if is_copy else ():
            originals = (tags.key == WORKSPACE, tags.value == original)
            store.execute(sqlalchemy.update(tags).where(*originals).values(value=workspace))
        columns = sqlalchemy.select(SqlExperiment.experiment_id, SqlExperiment.artifact_location)
        outdated = columns.join(SqlExperimentTag).where(
            SqlExperimentTag.key == WORKSPACE,
            SqlExperimentTag.value == workspace,
            SqlExperiment.artifact_location != location,
        )
        for experiment, old in store.execute(outdated).all():
            moved = sqlalchemy.func.replace(SqlRun.artifact_uri, f"{old}/", f"{location}/")
            for table, new in (
                (SqlRun, {"artifact_uri": moved}),
                (SqlExperiment, {"artifact_location": location}),
            ):
                update = sqlalchemy.update(table).where(table.experiment_id == experiment)
                store.execute(update.values(new))
