"""Reruns of a context extension: exact job lists over a finished one."""

import json
from pathlib import Path

import pytest
from alone import declared_jobs, run_alone
from small_workflow import EXTENSION, Checkout

HOME = "results/smoke"
PARENT, CHILD = (f"{HOME}/runs/{run}/0/training.json" for run in ("diff", "long_diff"))
SCALE = ("--config", "scale=smoke")
END = {"Extend the context of long_diff, seed 0", "Evaluate nll_by_position on long_diff, seed 0"}


def read(checkout: Checkout, name: str) -> dict:
    return dict(json.loads((checkout.folder / name).read_text()))


def test_the_child_continues_its_parent_on_the_same_token_ids(derived: Checkout) -> None:
    parent, child = read(derived, PARENT), read(derived, CHILD)
    assert child["settings"]["upstream"] == [parent["job_id"]]
    assert child["settings"]["init_from"] == "diff"
    assert child["job_id"].startswith("extend_context-")
    data = derived.folder / HOME / "data"
    of_parent, of_child = (data / name / "tokenizer.json" for name in ("stdlib_text", "long_text"))
    assert of_parent.read_bytes() == of_child.read_bytes()
    assert read(derived, EXTENSION)["settings"]["upstream"] == [child["job_id"]]
    header = next(
        (derived.folder / HOME / "state" / "extend_context" / "long_diff").rglob("*.jsonl")
    )
    assert parent["job_id"] in header.read_text()


@pytest.mark.slow
def test_its_jobs_run_on_only_their_declared_inputs(derived: Checkout, tmp_path: Path) -> None:
    jobs = [job for job in declared_jobs(derived, EXTENSION, *SCALE) if "long" in job.outputs[0]]
    assert {job.rule for job in jobs} == {
        "train_tokenizer", "tokenize", "extend_context", "evaluate",
    }  # fmt: skip
    for job in jobs:
        run_alone(derived, job, tmp_path / job.rule)


def test_a_finished_extension_has_nothing_to_do(edited: Checkout) -> None:
    assert edited.planned(EXTENSION, *SCALE) == set()


def test_editing_the_child_reruns_only_the_child(edited: Checkout) -> None:
    edited.edit("config/scales/smoke.yaml", "rope_theta: 80000.0", "rope_theta: 90000.0")
    assert edited.planned(EXTENSION, *SCALE) == END


def test_retraining_the_parent_reruns_the_child(edited: Checkout) -> None:
    planned = edited.planned(EXTENSION, *SCALE, "--forcerun", PARENT)
    assert planned == END | {"Train diff, seed 0"}


def test_editing_the_parent_reruns_both(edited: Checkout) -> None:
    edited.edit("config/runs.yaml", "{variant: diff_v1}", "{variant: diff_v1, lambda_init: 0.3}")
    assert edited.planned(EXTENSION, *SCALE) == END | {"Train diff, seed 0"}


def test_editing_the_derived_dataset_leaves_the_parent(edited: Checkout) -> None:
    edited.edit("config/scales/smoke.yaml", "{full_length: 256}", "{full_length: 200}")
    assert edited.planned(EXTENSION, *SCALE) == END | {"Tokenize long_text"} | {
        "Train the tokenizer of long_text"
    }
