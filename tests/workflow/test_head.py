"""What the head of a workflow does between jobs."""

from pathlib import Path

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
