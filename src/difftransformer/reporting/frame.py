"""All results of a folder as one tidy frame, for notebooks and pictures of one's own."""

from pathlib import Path
from typing import TYPE_CHECKING

from difftransformer.errors import DataError
from difftransformer.provenance.layout import Layout
from difftransformer.provenance.result import Result, read_result

if TYPE_CHECKING:
    from pandas import DataFrame


def results(folder: str | Path) -> "DataFrame":
    """Return every number that jobs found at a scale.

    Args:
        folder: Folder of a scale, such as ``results/tiny``.

    Returns:
        A line a number: scale, kind (training, evaluation, judgment, ...), run, suite, seed,
        metric, value (NaN: undefined), job_id, git_commit, fingerprint, settings (as the job got
        them, a mapping).

    Raises:
        DataError: No results lie there, or one is damaged.
    """
    import pandas as pd

    root = Path(folder)
    found = [read_result(path) for path in Layout.of(root).results()]
    if not found:
        raise DataError(
            f"{root}: holds no results; name the folder of a scale, such as results/tiny, and "
            "build something first"
        )
    return pd.DataFrame([line for one in found for line in _lines(one)])


def _lines(result: Result) -> list[dict[str, object]]:
    about = {
        "scale": result.scale,
        "kind": result.kind,
        "run": result.run,
        "suite": result.suite,
        "seed": result.seed,
    }
    origin = {
        "job_id": result.job_id,
        "git_commit": result.provenance.git_commit,
        "fingerprint": result.provenance.fingerprint,
        "settings": result.settings,
    }
    return [
        about | {"metric": name, "value": float("nan") if value is None else float(value)} | origin
        for name, value in result.metrics.items()
    ]
