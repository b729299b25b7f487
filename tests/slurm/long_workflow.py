"""A workflow on a cluster that lasts as long as there is something to disturb."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml
from small_cluster import QUICKLY, Cluster, wait_for
from small_workflow import ROWS, Checkout, make_small

PROFILE = ("--workflow-profile", "profiles/slurm")


def with_a_long_training(
    repository: Path, folder: Path, tables: Sequence[str] = ("table6", "long"), **training: int
) -> Checkout:
    """Two tables: one of a short training, and one of `diff`, which takes longer."""
    folder.mkdir(parents=True)
    copy = make_small(repository, folder)
    settings = {"steps": 3000, "checkpoint_every": 150} | training
    runs = {"runs": {"diff": {"overrides": {"training": settings}}}}
    copy.edit("config/scales/smoke.yaml", "\nruns:\n", f"\n{yaml.safe_dump(runs)}")
    short = folder / "config" / "artifacts" / "table6.yaml"
    table = yaml.safe_load(short.read_text())
    registry = folder / "config" / "registry.yaml"  # its claim is about rows that are not here
    registry.write_text(yaml.safe_dump(yaml.safe_load(registry.read_text()) | {"claims": {}}))
    for file, rows in ((short, ROWS[:1]), (short.with_name("long.yaml"), ROWS[1:2])):
        table["sections"][0]["baseline"] = rows[0]
        table["sections"][0]["rows"] = [{"run": run} for run in rows]
        file.write_text(yaml.safe_dump(table))
    project = folder / "config" / "config.yaml"
    both = yaml.safe_load(project.read_text()) | {"default_targets": [*tables]}
    project.write_text(yaml.safe_dump(both))
    return copy


class Workflow:
    """A workflow on the cluster, its head in a process of its own."""

    def __init__(self, checkout: Checkout, cluster: Cluster) -> None:
        self.folder, self._cluster = checkout.folder, cluster
        self.results = checkout.folder / "results" / "smoke"
        self._state = self.results / "state" / "pretrain" / "diff" / "0"

    @contextmanager
    def head(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start `snakemake`; what it says goes to head.log."""
        # Started in the background of a shell, this process and its own would not hear of Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        environment = os.environ | {"PYTHONPATH": str(self.folder / "src"), "OMP_NUM_THREADS": "1"}
        with (self.folder / "head.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "snakemake", *PROFILE, *QUICKLY, *words],
                cwd=self.folder, env=environment, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def read_log(self) -> str:
        return (self.folder / "head.log").read_text()

    def wait_for_progress(self, head: subprocess.Popen[bytes] | None = None) -> None:
        """Wait until the training has written one more checkpoint, or the head has ended."""
        before = self.step()

        def gone_on() -> bool:
            return self.step() > before or (head is not None and head.poll() is not None)

        wait_for(gone_on, "the training to go on", 300)

    def training_job(self) -> str:
        """The running Slurm job that trains `diff`, once it has gone on from where it was."""
        self.wait_for_progress()
        return self.running()[0]

    def running(self) -> list[str]:
        """The running Slurm jobs that train `diff`."""
        return self._cluster.jobs("RUNNING", "rule_pretrain_wildcards_smoke_diff_0")

    def processes(self) -> list[psutil.Process]:
        """What trains, of whichever job: processes that start others, and these."""

        return [  # Snakemake in a job names the rule, too
            process
            for process in psutil.process_iter(["cmdline", "cwd"])
            if process.info["cwd"] == str(self.folder)
            and {"pretrain", "snakemake"} & {*(process.info["cmdline"] or ())} == {"pretrain"}
        ]

    def step(self) -> int:
        """The step of the newest whole checkpoint."""
        names = [path.name for path in self._state.glob("*/checkpoint-*") if path.suffix == ""]
        return max((int(name.rpartition("-")[2]) for name in names), default=0)

    def trained(self) -> bool:
        """Whether the training has ended."""
        return (self.results / "runs" / "diff" / "0" / "training.json").exists()

    def finished(self) -> dict[str, int]:
        """What jobs have finished so far, and when."""
        kinds = ("data/*/manifest.json", "runs/*/*/training.json", "evaluations/*/*/*.json")
        return {str(p): p.stat().st_mtime_ns for kind in kinds for p in self.results.glob(kind)}
