"""The Snakemake process between jobs."""

from itertools import accumulate
from pathlib import Path

import pytest
from small_workflow import copy_of

PROBE = """
import atexit

atexit.register(lambda: print("limit of starts:", workflow.scheduler.job_rate_limiter))


rule probed:
    output:
        "probed",
    shell:
        "touch {output}"
"""

FAILS = """

rule half_made:
    output:
        "half",
    message:
        "Make half of it"
    shell:
        "touch {output}; false"
"""

ON_CARDS = """

rule computed:
    output:
        "computed{number}",
    resources:
        gpu=1,
    shell:
        "echo begin >> said && sleep 0.7 && echo end >> said && touch {output}"


rule all_computed:
    input:
        expand("computed{number}", number=range(5)),
"""


def test_jobs_of_this_machine_start_without_a_limit_in_time(
    repository: Path, tmp_path: Path
) -> None:
    # With one Snakemake looks at all that is ready once a second for each job that has ended.
    checkout = copy_of(repository, tmp_path)
    with (checkout.folder / "Snakefile").open("a") as rules:
        rules.write(PROBE)
    ended = checkout.snakemake("probed", "--cores", "1", "--config", "scale=smoke")
    assert (checkout.folder / "probed").exists()
    assert "limit of starts: None" in ended.stdout


def test_what_a_failed_job_leaves_is_made_again(repository: Path, tmp_path: Path) -> None:
    # snakemake/snakemake#3808
    checkout = copy_of(repository, tmp_path)
    with (checkout.folder / "Snakefile").open("a") as rules:
        rules.write(FAILS)
    words = ("half", "--keep-incomplete", "--config", "scale=smoke")
    assert checkout.snakemake(*words, "--cores", "1", check=False).returncode != 0
    assert (checkout.folder / "half").exists()
    assert checkout.planned(*words) == {"Make half of it"}


@pytest.mark.parametrize(("options", "most"), [((), 2), (("--resources", "gpu=1"), 1)])
def test_no_more_gpu_jobs_run_than_there_are_gpus(
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    most: int,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    checkout = copy_of(repository, tmp_path)
    with (checkout.folder / "Snakefile").open("a") as rules:
        rules.write(ON_CARDS)
    checkout.snakemake("all_computed", "--cores", "4", *options, "--config", "scale=smoke")
    steps = [
        1 if line == "begin" else -1 for line in (checkout.folder / "said").read_text().splitlines()
    ]
    assert len(steps) == 10 and max(accumulate(steps)) == most
