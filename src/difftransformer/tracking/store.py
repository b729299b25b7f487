"""Opening a store of MLflow: a database answers, a SQLite file is made whole.

Each results folder has an id, which its runs carry as a tag. A folder that was moved keeps the id,
and a copy gets one of its own, so that neither of the two touches the other's runs. Artifact
locations are absolute in MLflow; those of a folder that was moved or copied are mended here.
"""

import uuid
from dataclasses import dataclass
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
"""Tag of a run: the results folder that wrote it; of an experiment: whose artifacts lie where."""


@dataclass(frozen=True)
class Workspace:
    """Id of a results folder, and of the folder that it was copied from, or ""."""

    id: str
    copied_from: str = ""


def artifact_location(root: Path) -> str:
    """Return where the artifacts of a results folder go if its store is a database."""
    return (tracking_store(root) / "artifacts").resolve().as_uri()


def open_store(uri: str, root: Path) -> tuple[MlflowClient, str]:
    """Open the store at ``uri``, made first where it is a SQLite file that is not there.

    Returns:
        What calls the store, and the id of the results folder ``root``.
    """
    file = sqlite_file(uri)
    if is_database(uri) and file is None:
        # Raises what the database answers; mlflow would ask it ten times in 100 s, aloud.
        sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool).connect().close()
    # Processes that make one SQLite file together all crash.
    with locked(tracking_store(root) / "lock"):
        if file is not None and not file.exists():
            _make_database(uri, file)
            for sent in root.rglob(SENT):  # to a file before it, which is gone
                sent.unlink()
        client = MlflowClient(tracking_uri=uri)
        if file is not None:
            client.search_experiments(max_results=1)  # migrates one of an older MLflow
        workspace = _workspace(tracking_store(root) / "workspace")
        if is_database(uri):
            _mend(uri, root, workspace)
        return client, workspace.id


def _make_database(uri: str, path: Path) -> None:
    """Make a SQLite file whole: a migration that is killed halfway can never be taken up again."""
    with replacing(path) as aside:  # which removes what dead processes have left
        for name in ("journal", "wal", "shm"):  # of a process with this id that was killed
            aside.with_name(f"{aside.name}-{name}").unlink(missing_ok=True)
        scheme, _, name = uri.partition("///")
        whole = f"{scheme}///{aside}" + "".join(name.partition("?")[1:])
        client = MlflowClient(tracking_uri=whole)
        for default in client.search_experiments():
            client.delete_experiment(default.experiment_id)  # it would stay empty


def _workspace(path: Path) -> Workspace:
    """Read or make the file with the id of a results folder, its inode, and whose copy it is.

    The inode stays when the folder is moved; a copy has another one. An earlier version
    wrote only the id: the first copy that is opened keeps the id, which its stored runs have.
    """
    words = path.read_text().split() if path.exists() else []
    if len(words) > 1 and words[1] == str(path.stat().st_ino):
        return Workspace(words[0], *words[2:])
    found = Workspace(words[0]) if len(words) == 1 else Workspace(uuid.uuid4().hex, *words[:1])
    with replacing(path) as aside:
        aside.touch()
        aside.write_text(f"{found.id} {aside.stat().st_ino} {found.copied_from}\n")
    return found


def _mend(uri: str, root: Path, workspace: Workspace) -> None:
    """Set the artifact locations of this results folder, and whose runs those of a copy are.

    The runs in a SQLite file that was copied with its folder are the copy's own there.
    """
    file = sqlite_file(uri)
    is_inside = file is not None and file.resolve().is_relative_to(root.resolve())
    engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool)
    if not sqlalchemy.inspect(engine).has_table(SqlExperimentTag.__tablename__):
        return  # a database that has no run yet
    location = artifact_location(root)
    with engine.begin() as store:
        for tags in (SqlTag, SqlExperimentTag) if is_inside and workspace.copied_from else ():
            store.execute(
                sqlalchemy.update(tags)
                .where(tags.key == WORKSPACE, tags.value == workspace.copied_from)
                .values(value=workspace.id)
            )
        owner = sqlalchemy.select(SqlExperimentTag.value).where(
            SqlExperimentTag.experiment_id == SqlExperiment.experiment_id,
            SqlExperimentTag.key == WORKSPACE,
        )
        unowned = workspace.id if is_inside else ""  # such as those of a version without the tag
        elsewhere = sqlalchemy.select(
            SqlExperiment.experiment_id, SqlExperiment.artifact_location
        ).where(
            SqlExperiment.name.startswith(f"{PREFIX}/"),
            SqlExperiment.artifact_location != location,
            sqlalchemy.func.coalesce(owner.scalar_subquery(), unowned) == workspace.id,
        )
        for experiment, old in store.execute(elsewhere).all():
            runs = sqlalchemy.update(SqlRun).where(SqlRun.experiment_id == experiment)
            moved = sqlalchemy.func.replace(SqlRun.artifact_uri, f"{old}/", f"{location}/")
            store.execute(runs.values(artifact_uri=moved))
            one = sqlalchemy.update(SqlExperiment).where(SqlExperiment.experiment_id == experiment)
            store.execute(one.values(artifact_location=location))
