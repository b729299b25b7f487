"""Why a tracking store is not reached, in one line, and whether somebody has to mend it.

Stores say it in many lines, at the end of long ones, or as the text of a driver. What is down comes
back by itself; an address, a password or a driver that is wrong does not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from difftransformer.extras import how_to_get
from difftransformer.provenance.reporting import one_line

_ENTER = "check MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or PGPASSWORD of a database"

_MISTAKES = {
    r"password authentication failed|no password supplied|Access denied for user|error code 401": (
        f"user name or password are refused; {_ENTER}"
    ),
    r"error code 403": "this user may not write there; ask for MANAGE on its experiments",
    r'database "[^"]*" does not exist|Unknown database': (
        "there is no such database; make it (createdb) or change the address"
    ),
    r"no pg_hba.conf entry": "the database admits nobody from here; add this host to pg_hba.conf",
    r"file is not a database|database disk image is malformed": (
        "the file is damaged; remove it, and all that is tracked here goes into a new one"
    ),
    r"Could not parse SQLAlchemy URL|invalid literal for int|Can't load plugin": (
        "no address of a database; write postgresql://<user>@<host>:<port>/<database>"
    ),
}
_OUTAGES = {
    "Connection refused": "nothing listens there",
    r"could not translate host name|Failed to resolve|Name or service not known": (
        "its host is not known"
    ),
    r"too many 50\d error responses": "the server has an error of its own, its database perhaps",
    r"timed out|timeout expired": "no answer in time",
}


@dataclass(frozen=True)
class Refusal:
    """What a store, or the way to it, answered instead of doing what it was asked."""

    reason: str
    mistake: bool
    """Whether it stays so until somebody mends it."""


def refusal_of(error: Exception) -> Refusal:
    """Find out what the error of a store means; one that is not known counts as an outage."""
    if isinstance(error, ModuleNotFoundError):
        return Refusal(how_to_get(error) or f"{error.name} is not installed", mistake=True)
    said = str(error)
    for known, mistake in ((_MISTAKES, True), (_OUTAGES, False)):
        for pattern, reason in known.items():
            if re.search(pattern, said):
                return Refusal(reason, mistake)
    return Refusal(one_line(error), mistake=False)
