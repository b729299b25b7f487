"""Jobs that another judge reruns over finished generations, from a dry run."""

from pathlib import Path

import pytest
from small_workflow import Checkout, copy_of

WORDS = ("table4", "--config", "scale=smoke", "seeds=1")
RUNS = ("recall_transformer", "recall_transformer_halved_heads_groupnorm", "recall_diff")


@pytest.fixture
def answered(repository: Path, tmp_path: Path) -> Checkout:
    """Table 4 as Snakemake sees it when it is done: all files there, of no content."""
    checkout = copy_of(repository, tmp_path)
    listed = checkout.snakemake("--summary", *WORDS).stdout.splitlines()[1:]
    for name in (line.partition("\t")[0] for line in listed):
        path = checkout.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch() if path.suffix else path.mkdir(exist_ok=True)
    checkout.snakemake("--touch", "--cores", "1", *WORDS)
    return checkout


@pytest.mark.slow
def test_another_judge_reuses_the_existing_answers(
    answered: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-plan")
    judged = {f"Judge hallucination of {run}, seed 0, by endpoint" for run in RUNS}
    report_jobs = {"Build the table table4", "Draw the figure table4", "Write the report"}
    assert answered.planned(*WORDS, "judge=both") == judged | report_jobs
