"""Reruns of an adaptation: exact job lists over a finished one."""

import json
from pathlib import Path

import pytest
from alone import declared_jobs, run_alone
from safetensors import safe_open
from small_workflow import ADAPTATION, Checkout

HOME = "results/smoke"
PARENT, CHILD = (f"{HOME}/runs/{run}/0" for run in ("transformer", "adapted_lora"))
SCALE = ("--config", "scale=smoke")
END = {"Adapt adapted_lora, seed 0", "Evaluate adaptation_source on adapted_lora, seed 0"}
METHODS = "src/difftransformer/training/methods"


def test_it_is_tracked_as_an_adaptation_of_its_parent(derived: Checkout) -> None:
    parent, child = (
        json.loads((derived.folder / folder / "training.json").read_text())
        for folder in (PARENT, CHILD)
    )
    assert child["settings"]["upstream"] == [parent["job_id"]]
    assert child["settings"]["adapt"] == {"method": "lora", "rank": 8}
    assert child["job_id"].startswith("adapt-")
    assert child["metrics"]["extra_parameters"] > 0
    with safe_open(derived.folder / CHILD / "adapter.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["settings"])["peft_type"] == "LORA"


def test_the_source_domain_is_that_of_the_parent(derived: Checkout) -> None:
    result = json.loads((derived.folder / ADAPTATION).read_text())
    assert result["settings"]["config"]["dataset"] == "stdlib_text"
    assert result["metrics"]["loss"] > 0


@pytest.mark.slow
def test_its_jobs_run_on_only_their_declared_inputs(derived: Checkout, tmp_path: Path) -> None:
    jobs = [job for job in declared_jobs(derived, ADAPTATION, *SCALE) if "lora" in job.outputs[0]]
    assert {job.rule for job in jobs} == {"adapt", "evaluate"}
    for job in jobs:
        run_alone(derived, job, tmp_path / job.rule)


def test_editing_its_method_reruns_it(edited: Checkout) -> None:
    edited.edit(f"{METHODS}/lora.py", "r=rank", "r=rank + 1")
    assert edited.planned(ADAPTATION, *SCALE) == END


def test_other_settings_of_the_method_rerun_it(edited: Checkout) -> None:
    edited.edit("config/runs.yaml", "{method: lora, rank: 8}", "{method: lora, rank: 4}")
    assert edited.planned(ADAPTATION, *SCALE) == END


def test_a_retrained_parent_is_adapted_again(edited: Checkout) -> None:
    planned = edited.planned(ADAPTATION, *SCALE, "--forcerun", f"{PARENT}/training.json")
    assert planned == END | {"Train transformer, seed 0"}


def test_forced_it_starts_from_scratch_from_the_finished_parent(edited: Checkout) -> None:
    planned = edited.planned(ADAPTATION, *SCALE, "--forcerun", f"{CHILD}/training.json")
    assert planned == END
