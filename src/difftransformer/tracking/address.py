"""The address of the MLflow store: where it comes from, what it may be and must not hold."""

from __future__ import annotations

import os
from pathlib import Path

from difftransformer.errors import ConfigError
from difftransformer.provenance.layout import tracking_store
from difftransformer.provenance.masking import displayed, has_secret

OFF = "off"
ROOT = Path("results")
VARIABLE = "MLFLOW_TRACKING_URI"
_SCHEMES = ("sqlite", "postgresql", "mysql", "mssql", "http", "https", "databricks")


def disk_passes() -> bool:
    """Return whether the disk goes with the job, as a pod's does; envs/Containerfile says so."""
    return os.environ.get("DIFFTRANSFORMER_DISK") == "passing"


def adopt(configured: str | None) -> None:
    """Make the configured address hold for this process and its jobs; the environment wins."""
    if configured and not os.environ.get(VARIABLE, "").strip():
        os.environ[VARIABLE] = configured


def resolve_uri(uri: str | None, root: Path = ROOT) -> str | None:
    """Return the address: ``uri``, else MLFLOW_TRACKING_URI, else SQLite in the results folder.

    Returns None for "off", and where that SQLite would go with the disk of a pod.

    Raises:
        ConfigError: a kind of address that MLflow cannot write runs to.
    """
    given = uri or os.environ.get(VARIABLE, "").strip()
    if not given:
        return None if disk_passes() else f"sqlite:///{tracking_store(root.resolve())}/mlflow.db"
    _require_known(given, "tracking uri" if uri else f"environment variable {VARIABLE}")
    return None if given == OFF else given


def check_uri(uri: str | None, place: str) -> None:
    """Check the address in the configuration at ``place``, and that in the environment.

    Raises:
        ConfigError: a kind of address that MLflow cannot write runs to, or one with a user, a
            password, a token or a place for one, which a file that is kept and a command that is
            logged must not hold.
    """
    resolve_uri(None)
    if not uri:
        return
    if has_secret(uri):
        own = (
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
            if uri.lower().startswith("http")
            else f"{VARIABLE} to the whole address, or PGUSER and PGPASSWORD of PostgreSQL"
        )
        raise ConfigError(
            f"{place}: the address has a user, a password, a token, or a query or fragment that "
            f"may hold one; leave it out and set {own}, in the environment"
        )
    _require_known(uri, place)


def is_database(uri: str) -> bool:
    """Return whether mlflow opens the database of a store itself, without a server."""
    return uri.partition(":")[0] not in ("http", "https", "databricks")


def sqlite_file(uri: str) -> Path | None:
    """Return the file of a store that is a SQLite file."""
    return Path(uri.partition("?")[0].partition("///")[2]) if uri.startswith("sqlite:") else None


def _require_known(uri: str, place: str) -> None:
    if uri != OFF and uri.partition(":")[0].partition("+")[0] not in _SCHEMES:
        raise ConfigError(
            f"{place}: {displayed(uri)!r} is no address of a store: use off, sqlite:///<file>, "
            f"or one of {', '.join(_SCHEMES[1:])}"
        )
