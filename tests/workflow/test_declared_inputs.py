"""Every rule declares all files that its job reads."""

import re
import shlex
from pathlib import Path

import pytest
from alone import DeclaredJob, declared_jobs, make_alone, one_of_each_rule, run_alone
from small_workflow import Checkout, copy_of

from difftransformer.planning.rules import ENTRIES

TIMED = "results/smoke/timings/throughput.json"
JUDGED = "results/smoke/judgments/lexical/hallucination/recall_diff/0.json"
TRAINED = "results/smoke/runs/diff/0/config.json"
ELSEWHERE = {"extend_context", "adapt", "benchmark"}
"""test_extension_reruns.py and test_adaptation_reruns.py have two; the last is below."""


def test_each_rule_runs_on_only_its_declared_inputs(finished: Checkout, tmp_path: Path) -> None:
    jobs = one_of_each_rule(declared_jobs(finished))
    assert {job.rule for job in jobs} == set(ENTRIES) - ELSEWHERE
    for job in jobs:
        run_alone(finished, job, tmp_path / job.rule)


def test_a_folder_goes_into_storage_before_what_says_that_it_is_whole(finished: Checkout) -> None:
    """In Snakemake's order; of a folder object storage may have a part, of a file it has all."""
    for job in declared_jobs(finished):
        folders = [name for name in job.outputs if (finished.folder / name).is_dir()]
        assert not folders or job.outputs[-1].endswith(".json"), job.outputs


def test_a_job_cannot_read_undeclared_files(finished: Checkout, tmp_path: Path) -> None:
    (job,) = [job for job in declared_jobs(finished) if TRAINED in job.outputs]
    job.inputs.remove("results/smoke/data/stdlib_text/shards")
    with pytest.raises(AssertionError, match=r"(?s)pretrain reads more .* shard is missing"):
        run_alone(finished, job, tmp_path / "alone")


@pytest.mark.slow
def test_a_judge_runs_on_only_its_declared_inputs(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "checkout").mkdir()
    checkout = copy_of(repository, tmp_path / "checkout")
    checkout.snakemake(JUDGED, "--cores", "2", "--config", "scale=smoke")
    jobs = declared_jobs(checkout, JUDGED, "--config", "scale=smoke")
    for job in one_of_each_rule(jobs):
        run_alone(checkout, job, tmp_path / job.rule)


@pytest.mark.slow
def test_timings_are_measured_where_nothing_else_is(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "checkout").mkdir()
    checkout = copy_of(repository, tmp_path / "checkout")
    ended = checkout.snakemake("-n", "--printshellcmds", TIMED, "--config", "scale=smoke")
    (command,) = re.findall(r"difftransformer step benchmark .*", ended.stdout + ended.stderr)
    job = DeclaredJob("benchmark", [], shlex.split(command), [TIMED])
    make_alone(checkout, job, tmp_path / "alone")
