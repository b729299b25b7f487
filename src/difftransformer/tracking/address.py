"""The address of the MLflow store (tracking URI): its sources and validation, without secrets."""

from __future__ import annotations

import os
from pathlib import Path

from difftransformer.errors import ConfigError
from difftransformer.provenance.layout import tracking_store
from difftransformer.provenance.masking import has_secret, mask_addresses

OFF = "off"
ROOT = Path("results")
VARIABLE = "MLFLOW_TRACKING_URI"
_SCHEMES = ("sqlite", "postgresql", "mysql", "mssql", "http", "https", "databricks")


def is_disk_ephemeral() -> bool:
    """Return whether the disk is lost when the job ends, as in a pod.

    The container image sets this (envs/Containerfile).
    """
    return os.environ.get("DIFFTRANSFORMER_DISK") == "passing"


def set_default_uri(configured: str | None) -> None:
    """Set the variable MLFLOW_TRACKING_URI to an address, unless the variable is set already.

    This process and its jobs read the variable.

    Args:
        configured: Address in the configuration; None or empty changes nothing.
    """
    if configured and not os.environ.get(VARIABLE, "").strip():
        os.environ[VARIABLE] = configured


def resolve_uri(uri: str | None, root: Path = ROOT) -> str | None:
    """Return the store's address: ``uri``, else MLFLOW_TRACKING_URI, else SQLite below ``root``.

    Returns None for the address "off", or if the SQLite file would be lost with the disk of a pod.

    Args:
        uri: The address; None or empty if it is not given.
        root: The results folder.

    Raises:
        ConfigError: MLflow cannot write runs to an address of this kind.
    """
    address = uri or os.environ.get(VARIABLE, "").strip()
    if not address:
        return (
            None if is_disk_ephemeral() else f"sqlite:///{tracking_store(root.resolve())}/mlflow.db"
        )
    _check_scheme(address, "tracking uri" if uri else f"environment variable {VARIABLE}")
    return None if address == OFF else address


def check_uri(uri: str | None, key: str) -> None:
    """Check the store's address in the configuration and the address in the environment.

    Args:
        uri: Address in the configuration; None or empty if it is not set.
        key: Key path of the address, for error messages.

    Raises:
        ConfigError: MLflow cannot write runs to an address of this kind; or the configured address
            may contain a user, password or token, which would end up in files and logs.
    """
    resolve_uri(None)
    if not uri:
        return
    if has_secret(uri):
        variables = (
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
            if uri.lower().startswith("http")
            else f"{VARIABLE} to the whole address, or PGUSER and PGPASSWORD of PostgreSQL"
        )
        raise ConfigError(
            f"{key}: the address has a user, a password, a token, or a query or fragment that "
            f"may hold one; leave it out and set {variables}, in the environment"
        )
    _check_scheme(uri, key)


def is_database(uri: str) -> bool:
    """Return whether ``uri`` is a database that this process opens itself, without a server."""
    return uri.partition(":")[0] not in ("http", "https", "databricks")


def sqlite_file(uri: str) -> Path | None:
    """Return the path of the file of a SQLite store, or None for another kind of store."""
    return Path(uri.partition("?")[0].partition("///")[2]) if uri.startswith("sqlite:") else None


def _check_scheme(uri: str, key: str) -> None:
    if uri != OFF and uri.partition(":")[0].partition("+")[0] not in _SCHEMES:
        raise ConfigError(
            f"{key}: {mask_addresses(uri)!r} is not a tracking URI: use off, sqlite:///<file>, "
            f"or one of {', '.join(_SCHEMES[1:])}"
        )
