"""Jobs that an edit reruns, from dry runs over a finished workflow."""

import csv
import json
from pathlib import Path

import pytest
from small_workflow import ROWS, Checkout

TRAINER = "src/difftransformer/training/trainer.py"
VARIANT = "src/difftransformer/models/attention/diff_v1.py"
REPORT = "src/difftransformer/evaluations/validation_slices/report.py"
SCORER = "src/difftransformer/evaluation/scorer.py"
COLUMNS = "artifact,row,column,value,std,ci_low,ci_high,n,paper_value,run_ids"
MADE = {"Build the table table6", "Draw the figure table6"}
PAGES = {"Test the claims", "Write the report"}
END = MADE | PAGES


def jobs(*runs: str, seed: int = 0) -> set[str]:
    """Training and evaluation of runs."""
    return {
        text
        for run in runs
        for text in (
            f"Train {run}, seed {seed}",
            f"Evaluate validation_slices on {run}, seed {seed}",
        )
    }


EVALUATED = {text for text in jobs(*ROWS) if text.startswith("Evaluate")}
NGRAMS = {"Find the n-grams that are frequent in stdlib_text"}
PACKED = {"Train the tokenizer of stdlib_text", "Tokenize stdlib_text"} | NGRAMS


@pytest.mark.parametrize(
    ("file", "old", "new", "reruns"),
    [
        ("config/scales/smoke.yaml", "share: 0.2\n", "share: 0.3\n", PACKED | jobs(*ROWS) | END),
        ("config/evaluations.yaml", "    n: 2 ", "    n: 3 ", NGRAMS | EVALUATED | END),
        (SCORER, "", "ADDED = 1\n", EVALUATED | END),
        ("config/runs.yaml", "label: 'DIFF", "label: 'V1", END),
        (
            "config/artifacts/table6.yaml",
            "Cross-entropy",
            "Entropy",
            {"Build the table table6"} | PAGES,
        ),
    ],
    ids=["dataset", "suite", "scoring", "label", "caption"],
)
def test_an_edit_reruns_the_jobs_that_depend_on_it(
    file: str, old: str, new: str, reruns: set[str], checkout: Checkout
) -> None:
    checkout.edit(file, old, new)
    assert checkout.planned() == reruns


def test_comments_and_docstrings_rerun_nothing(checkout: Checkout) -> None:
    for name in (TRAINER, VARIANT, REPORT):
        checkout.edit(name, '"""', '"""Reworded. ')
        path = checkout.folder / name
        path.write_text(path.read_text() + "\n# a remark\n")
    assert checkout.planned() == set()


def test_forcing_the_file_of_a_cell_reruns_only_its_job(checkout: Checkout) -> None:
    row = ROWS[0]
    (file,) = (checkout.folder / "results").rglob(f"validation_slices/{row}/0.json")
    name = str(file.relative_to(checkout.folder))
    assert checkout.planned(name, "--force") == {f"Evaluate validation_slices on {row}, seed 0"}


def test_editing_one_run_reruns_that_run(checkout: Checkout) -> None:
    checkout.edit(
        "config/runs.yaml",
        "attention: {norm: false}",
        "attention: {norm: false}, rope_theta: 5000.0",
    )
    assert checkout.planned() == jobs("diff_no_groupnorm") | END


def test_editing_a_variant_reruns_the_runs_that_use_it(checkout: Checkout) -> None:
    checkout.edit(VARIANT, "LAMBDA_STD = 0.1", "LAMBDA_STD = 0.2")
    assert checkout.planned() == jobs("diff", "diff_no_groupnorm") | END


def test_editing_a_report_rebuilds_what_it_shows(checkout: Checkout) -> None:
    path = checkout.folder / REPORT
    path.write_text(path.read_text() + "\nADDED = 1\n")
    assert checkout.planned() == END


def test_editing_a_template_rewrites_what_it_shapes(checkout: Checkout) -> None:
    checkout.edit("src/difftransformer/reporting/templates/style.css", "{", "{ ")
    assert checkout.planned() == MADE | {"Write the report"}


def test_editing_the_site_writes_the_report_alone(checkout: Checkout) -> None:
    checkout.edit("src/difftransformer/reporting/site/assets/site.css", "{", "{ ")
    assert checkout.planned() == {"Write the report"}


@pytest.mark.parametrize(
    ("old", "new"),
    [("question: Does", "question: How well does"), ("powered_for: 0.025", "powered_for: 0.03")],
    ids=["text", "power"],
)
def test_editing_a_claim_tests_it_again(old: str, new: str, checkout: Checkout) -> None:
    checkout.edit("config/registry.yaml", old, new)
    assert checkout.planned() == PAGES


def test_deleted_outputs_of_an_artifact_are_rebuilt(checkout: Checkout) -> None:
    made = checkout.folder / "results" / "smoke"
    for name, job in (
        ("tables/table6.md", "Build the table table6"),
        ("figures/table6.png", "Draw the figure table6"),
        ("verdicts.md", "Test the claims"),
        ("report.sha256.json", "Write the report"),
    ):
        content = (made / name).read_bytes()
        (made / name).unlink()
        assert job in checkout.planned(), name
        (made / name).write_bytes(content)


def test_an_error_in_the_last_job_is_reported_once(checkout: Checkout) -> None:
    path = checkout.folder / "src/difftransformer/reporting/verdict_job.py"
    source = path.read_text()
    checkout.edit(
        str(path), "    requested = ", "    raise UserError('a mistake')\n    requested = "
    )
    stderr = checkout.snakemake("--cores", "1", "--retries", "2", check=False).stderr
    path.write_text(source)
    checkout.snakemake("--cores", "1")  # for who comes after
    assert stderr.count("FAILED verdicts") == 1, stderr


def test_more_seeds_train_the_new_ones_only(checkout: Checkout) -> None:
    assert checkout.planned("--config", "seeds=2") == jobs(*ROWS, seed=1) | END


def test_a_forced_ablation_reruns_its_runs_and_what_shows_them(checkout: Checkout) -> None:
    forced = "results/smoke/runs/diff_no_groupnorm/0/training.json"
    planned = checkout.planned("default_targets", "--forcerun", forced)
    assert planned == jobs("diff_no_groupnorm") | END


def test_the_table_names_the_jobs_behind_every_cell(finished: Checkout) -> None:
    results = finished.folder / "results" / "smoke"
    job_ids = {
        json.loads(path.read_text())["job_id"]
        for path in [
            *results.glob("runs/*/*/training.json"),
            *results.glob("evaluations/*/*/*.json"),
        ]
    }
    text = (results / "tables" / "table6.csv").read_text()
    assert text.splitlines()[0] == COLUMNS
    lines = list(csv.DictReader(text.splitlines()))
    assert any(line["value"] for line in lines)
    for line in lines:
        ids = set(filter(None, line["run_ids"].split(";")))
        assert ids <= job_ids, line
        assert ids or not line["value"], line


def test_the_report_needs_no_other_file(finished: Checkout) -> None:
    report = finished.folder / "results" / "smoke" / "report"
    for path in report.glob("*.html"):
        page = path.read_text().replace("http://www.w3.org", "")
        assert "http://" not in page and 'src="/' not in page and 'src="..' not in page
    single_page = (report / "single-page.html").read_text()
    assert 'src="assets' not in single_page and "<link" not in single_page


def test_runs_are_in_the_tracking_store(finished: Checkout) -> None:
    import sqlite3

    store: Path = finished.folder / "results" / "mlflow" / "mlflow.db"
    query = """
        select e.name, count(*) from runs r join experiments e using (experiment_id)
        where r.status = 'FINISHED' group by e.name
    """
    with sqlite3.connect(store) as connection:
        run_counts = dict(connection.execute(query).fetchall())
    counts = {name.rpartition("/")[2]: count for name, count in run_counts.items()}
    once = ("train_tokenizer", "tokenize", "count_ngrams", "table", "figure", "verdicts", "report")
    assert counts == dict.fromkeys(once, 1) | {"pretrain": 3, "evaluate": 3}
