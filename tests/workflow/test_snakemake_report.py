"""Snakemake's own report, by the command of docs/reproducing.md, of a workflow that really ran."""

import re
import zipfile
from pathlib import Path

from small_workflow import Checkout


def test_the_report_of_the_page_is_written(finished: Checkout, repository: Path) -> None:
    page = (repository / "docs" / "reproducing.md").read_text()
    (path,) = re.findall(r"snakemake --report (\S+)", page)
    finished.snakemake("--report", path)
    with zipfile.ZipFile(finished.folder / path) as report:
        names = report.namelist()
        assert report.testzip() is None
        (start,) = (name for name in names if name.endswith("report.html"))
        assert "table6.html" in report.read(start).decode()
    assert any(name.endswith("table6.html") for name in names)
    assert any(name.endswith("/index.html") for name in names)  # of the report's folder
