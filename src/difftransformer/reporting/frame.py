"""All results of a folder as one tidy frame, for notebooks."""

from pathlib import Path
from typing import TYPE_CHECKING

from difftransformer.errors import DataError
from difftransformer.provenance.layout import Layout
from difftransformer.provenance.result import Result, read_result

if TYPE_CHECKING:
    from pandas import DataFrame


def results(folder: str | Path) -> "DataFrame":
    """Return a DataFrame with every metric of every job of a scale.

    Args:
        folder: Folder of a scale, such as ``results/tiny``.

    Returns:
        One row per metric: scale, kind (training, evaluation, judgment, ...), run, suite, seed,
        metric, value (NaN: undefined), job_id, git_commit, fingerprint, settings (a
        mapping, as passed to the job).

    Raises:
        DataError: The folder has no results, or one is damaged.
    """
    import pandas as pd

    root = Path(folder)
    loaded = [read_result(path) for path in Layout.of(root).results()]
    if not loaded:
        raise DataError(
            f"{root}: has no results; name the folder of a scale, such as results/tiny, and "
            "build an artifact first"
        )
    return pd.DataFrame([line for result in loaded for line in _lines(result)])


def _lines(result: Result) -> list[dict[str, object]]:
    job = {
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
        job | {"metric": name, "value": float("nan") if value is None else float(value)} | origin
        for name, value in result.metrics.items()
    ]
