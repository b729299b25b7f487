"""Values of synthetic results and of the tables built from them."""

import csv
import json
from pathlib import Path

from fake_configs import resolved_artifact
from fake_results import FakeResults

from difftransformer.reporting.table_job import build_table


def read(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Lines of a csv by row and column."""
    with path.open(encoding="utf-8") as file:
        return {(line["row"], line["column"]): line for line in csv.DictReader(file)}


def build_and_read(
    fake: FakeResults, name: str, folder: Path
) -> dict[tuple[str, str], dict[str, str]]:
    """Build a table in a folder."""
    build_table(resolved_artifact(name), fake.results, folder / name)
    return read(folder / f"{name}.csv")


def metrics(fake: FakeResults, suite: str, run: str) -> list[dict[str, float]]:
    """Numbers of an evaluation, by seed."""
    paths = [path for path in fake.results if f"/evaluations/{suite}/{run}/" in str(path)]
    return [json.loads(path.read_text())["metrics"] for path in sorted(paths)]
