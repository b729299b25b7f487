"""The notebook runs from top to bottom on what a small workflow built."""

import re
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from small_workflow import Checkout


def test_the_notebook_runs(finished: Checkout, repository: Path) -> None:
    notebook = nbformat.read(repository / "examples" / "results.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # in git it has none
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    first.source, changed = re.subn(r"results/tiny", "results/smoke", first.source)
    assert changed == 1
    resources = {"metadata": {"path": str(finished.folder)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert not [out for out in outputs if out.output_type == "error"]
    pictures = [out for out in outputs if "image/png" in out.get("data", {})]
    assert len(pictures) == 3
    tables = [out.data["text/plain"] for out in outputs if "text/html" in out.get("data", {})]
    assert all(run in tables[1] for run in ("transformer", "diff", "diff_no_groupnorm"))
