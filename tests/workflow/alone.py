"""Rerun jobs of a finished workflow in a folder with only their declared inputs."""

import os
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from preloaded import python
from small_workflow import Checkout

from difftransformer.provenance.checksums import compare_builds


@dataclass
class DeclaredJob:
    """A job as the workflow plans it."""

    rule: str
    inputs: list[str]
    command: list[str]
    outputs: list[str] = field(default_factory=list)


def declared_jobs(checkout: Checkout, *words: str) -> list[DeclaredJob]:
    """Return the jobs behind targets, whether or not they are done."""
    head, *lines = checkout.snakemake("--detailed-summary", *words).stdout.splitlines()
    jobs: dict[str, DeclaredJob] = {}
    for line in lines:
        row = dict(zip(head.split("\t"), line.split("\t"), strict=True))
        inputs = [name for name in row["input-file(s)"].split(",") if name not in ("", "-")]
        job = DeclaredJob(row["rule"], inputs, shlex.split(row["shellcmd"]))
        jobs.setdefault(row["shellcmd"], job).outputs.append(row["output_file"])
    return list(jobs.values())


def one_of_each_rule(jobs: list[DeclaredJob]) -> list[DeclaredJob]:
    return list({job.rule: job for job in jobs}.values())


def run_alone(checkout: Checkout, job: DeclaredJob, folder: Path) -> None:
    """Run a job in a folder with its declared inputs alone: it makes what the workflow made."""
    make_alone(checkout, job, folder)
    (plan,) = (folder / "results").glob("*/plan")
    original = checkout.folder / plan.parent.relative_to(folder)
    compared = compare_builds(original, plan.parent)
    assert [file.name for file in compared if not file.same] == []


def make_alone(checkout: Checkout, job: DeclaredJob, folder: Path) -> None:
    """Run a job in a folder with its declared inputs alone: it makes what it declares.

    Its settings are there, too: every process of Snakemake writes it from the configuration.
    """
    config = job.command[job.command.index("--job-config") + 1]
    folder.mkdir()
    for name in (*job.inputs, config):
        source, target = checkout.folder / name, folder / name
        if target != source:  # corpora lie elsewhere
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, target, **({"dirs_exist_ok": True} if source.is_dir() else {}))
    program, *words, standard_input, files = job.command
    assert standard_input == "<<<"
    assert program == "difftransformer"
    ended = python(
        "-m",
        "difftransformer",
        *words,
        "--files",
        files,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(checkout.folder / "src"),
            "OMP_NUM_THREADS": "1",
            "MLFLOW_TRACKING_URI": "off",
        },
    )
    assert ended.returncode == 0, f"{job.rule} reads more than it declares:\n{ended.stderr}"
    for name in job.outputs:
        assert (folder / name).exists(), f"{job.rule} declares {name} and does not make it"
