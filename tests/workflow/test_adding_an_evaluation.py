"""The steps of docs/adding_an_evaluation.md work."""

import re
import shutil
import sqlite3
from pathlib import Path

import pytest
from small_workflow import Checkout

FOLDER = "src/difftransformer/evaluations/entropy"
MOST_LINES, MOST_FILES, MOST_FOLDERS = 120, 8, 4


@pytest.mark.slow
def test_the_page_adds_an_evaluation_and_its_table(
    finished: Checkout, repository: Path, tmp_path: Path
) -> None:
    page = (repository / "docs" / "adding_an_evaluation.md").read_text()
    assert FOLDER in page
    blocks = re.findall(r"^```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    *codes, suite, artifact = blocks
    assert sum(len(block.splitlines()) for block in blocks) <= MOST_LINES
    (command,) = re.findall(r"`(snakemake [^`]+)`", page)
    checkout = Checkout(tmp_path / "copy")
    shutil.copytree(finished.folder, checkout.folder)

    files = [f"{FOLDER}/{name}.py" for name in ("__init__", "settings", "measure", "report")]
    files += ["config/artifacts/my_entropy.yaml", "config/evaluations.yaml"]
    assert len(files) <= MOST_FILES and len({Path(file).parent for file in files}) <= MOST_FOLDERS
    (checkout.folder / FOLDER).mkdir()
    for file, text in zip(files[:5], [*codes, artifact], strict=True):
        (checkout.folder / file).write_text(text)
    checkout.edit("config/evaluations.yaml", "suites:\n", f"suites:\n{suite}")

    words = command.split()[1:]
    assert checkout.planned("default_targets") == set()  # all others are as they were
    made = {"Build the table my_entropy", "Draw the figure my_entropy"}
    evaluation_jobs = {f"Evaluate entropy on {run}, seed 0" for run in ("transformer", "diff")}
    assert checkout.planned(*words) == evaluation_jobs | made | {
        "Test the claims",
        "Write the report",
    }
    checkout.snakemake(*words, "--cores", "1")
    results = checkout.folder / "results" / "smoke"
    for ending in ("csv", "md", "tex", "html"):
        text = (results / f"tables/my_entropy.{ending}").read_text()
        assert ("diff" if ending == "csv" else "Entropy") in text
    assert (results / "figures/my_entropy.svg").is_file()
    assert "Entropy of attention" in (results / "report/my_entropy.html").read_text()
    with sqlite3.connect(checkout.folder / "results/mlflow/mlflow.db") as store:
        count = "select count(*) from tags where key = 'suite' and value = 'entropy'"
        assert store.execute(count).fetchone() == (2,)

    checkout.edit(f"{FOLDER}/report.py", "decimals=2", "decimals=3")
    assert checkout.planned(*words) == made | {"Write the report"}  # it answers no question
    checkout.edit(f"{FOLDER}/measure.py", "1e-300", "1e-200")
    assert checkout.planned(*words) == evaluation_jobs | made | {"Write the report"}
    # The report and the verdicts depend on what is asked for; what is kept is shown as it lies.
    assert checkout.planned("default_targets") == {"Test the claims", "Write the report"}
