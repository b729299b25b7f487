"""One training on two nodes of Slurm, whatever becomes of them."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from small_cluster import QUICKLY, Cluster, missing, wait_for
from steps import step_words
from tiny_training import VOCAB, make_run_config, write_dataset

pytestmark = pytest.mark.slurm
PROFILE = Path(__file__).parents[2] / "profiles" / "slurm"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if lacking := missing():
        pytest.fail(lacking, pytrace=False)
    with tempfile.TemporaryDirectory(prefix="slurm") as folder, Cluster(Path(folder), 2) as running:
        yield running


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokens = np.cumsum(np.random.default_rng(0).integers(1, 3, size=6000)) % VOCAB
    splits = {"train": tokens[:5000], "validation": tokens[5000:]}
    return write_dataset(tmp_path_factory.mktemp("data") / "text", splits, vocab_size=VOCAB)


SNAKEFILE = """
rule pretrain:
    output: "out/training.json"
    shell: "{command}"
"""
RESOURCES = ("nodes=2", "tasks=2", "mpi=srun", "tasks_per_gpu=0")  # as docs/cluster.md has it


class Training:
    """One of several processes, in a folder."""

    def __init__(self, folder: Path, cluster: Cluster, text: Path, world_size: int = 2) -> None:
        self._folder, self._cluster = folder, cluster
        folder.mkdir()
        run_config = make_run_config(
            world_size=world_size,
            steps=600,
            batch_size=6,
            checkpoint_every=50,
            log_every=100,
            warmup_steps=10,
        )
        (folder / "slice.json").write_text(run_config.model_dump_json())
        inputs, output = {"data": text / "manifest.json"}, {"result": "out/training.json"}
        *words, _, files = step_words("pretrain", "slice.json", inputs, output)
        (folder / "files.json").write_text(files)
        command = f"{sys.executable} -m difftransformer {' '.join(words)} < files.json"
        self._command = f"env MLFLOW_TRACKING_URI=off {command}"

    def submit(self, nodes: int) -> str:
        """Make it a job of so many nodes; return its id."""
        job = ("--requeue", "--open-mode=append", f"--nodes={nodes}", f"--ntasks={nodes}")
        job += (
            "--cpus-per-task=2",
            "--parsable",
            f"--chdir={self._folder}",
            "--output=training.log",
        )
        return self._cluster.ask("sbatch", *job, "--wrap", f"exec {self._command}").strip()

    def run(self) -> None:
        """Train here, outside of Slurm."""
        subprocess.run(self._command, shell=True, cwd=self._folder, check=True, timeout=200)

    def run_by_the_profile(self) -> None:
        """Train as the job of a rule that has two nodes."""
        (self._folder / "Snakefile").write_text(SNAKEFILE.format(command=self._command))
        words = ["--workflow-profile", PROFILE, *QUICKLY, "--slurm-keep-successful-logs"]
        words.append("--set-resources")
        words += [f"pretrain:{resource}" for resource in RESOURCES]
        with (self._folder / "training.log").open("ab") as log:
            subprocess.run(
                [sys.executable, "-m", "snakemake", *words], cwd=self._folder,
                env=self._cluster.environment, stdout=log, stderr=log, check=True, timeout=400,
            )  # fmt: skip
        for path in self._folder.glob(".snakemake/slurm_logs/**/*.log"):
            with (self._folder / "training.log").open("a") as log:
                log.write(path.read_text())

    def wait_for_step(self, step: int) -> None:
        wait_for(lambda: self.step() >= step or self.ended(), f"step {step}", 120)

    def step(self) -> int:
        checkpoints = self._folder.glob("results/unit/state/pretrain/*/0/*/checkpoint-*")
        return max((int(path.name[-8:]) for path in checkpoints if path.suffix == ""), default=0)

    def ended(self) -> bool:
        return (self._folder / "out" / "training.json").exists()

    def read_log(self) -> str:
        return (self._folder / "training.log").read_text()

    def bytes(self) -> list[bytes]:
        names = ("model.safetensors", "history.csv")
        return [(self._folder / "out" / name).read_bytes() for name in names]


def test_two_nodes_train_the_same_weights_as_two_local_processes(
    cluster: Cluster, tmp_path: Path, text: Path
) -> None:
    names = ("alone", "disturbed", "by_the_profile")
    alone, disturbed, by_the_profile = (Training(tmp_path / n, cluster, text) for n in names)
    job = disturbed.submit(nodes=2)
    disturbed.wait_for_step(100)
    cluster.lose_node("node2")
    cluster.start_node("node2")
    wait_for(lambda: cluster.restarts(job) == 1, "Slurm to requeue", 120)
    disturbed.wait_for_step(disturbed.step() + 100)
    cluster.ask("scancel", "--signal=USR1", job)  # as before its time is over
    wait_for(lambda: cluster.restarts(job) == 2, "the job to requeue itself", 60)
    reached = disturbed.step()
    wait_for(disturbed.ended, "the training", 200)
    alone.run()
    log = disturbed.read_log()
    assert "training in 2 processes on 2 nodes" in log
    assert f"resuming from the checkpoint of step {reached}" in log
    assert "Traceback" not in log, log
    errors = [line for line in log.splitlines() if line.startswith("error: ")]
    # Of the node that is left a rank, and its launcher where it asks the store of the other first.
    assert len(errors) <= 2 and all("lost the other" in line for line in errors), log
    by_the_profile.run_by_the_profile()
    assert "training in 2 processes on 2 nodes" in by_the_profile.read_log(), (
        by_the_profile.read_log()
    )
    assert disturbed.bytes() == alone.bytes() == by_the_profile.bytes()


def test_indivisible_world_size_raises_a_one_line_error(
    cluster: Cluster, tmp_path: Path, text: Path
) -> None:
    training = Training(tmp_path / "run", cluster, text, world_size=3)
    training.submit(nodes=2)
    wait_for(lambda: not cluster.jobs("PENDING,RUNNING,COMPLETING"), "the job", 60)
    assert "error: training.world_size 3 is no multiple of the 2 nodes" in training.read_log()
