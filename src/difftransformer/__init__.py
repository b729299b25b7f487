"""Rebuild every table and figure of the Differential Transformer work as tracked artifacts."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """Load what notebooks use when it is asked for: ``difftransformer.results``.

    By its name, so that no job's code depends on it.
    """
    if name == "results":
        return import_module("difftransformer.reporting.frame").results
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
