"""One training on two nodes of Slurm, whatever becomes of them."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from small_cluster import Cluster, missing, wait_for
from tiny_training import VOCAB, make_slice, write_dataset

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if lacking := missing():
        pytest.fail(lacking)
    with tempfile.TemporaryDirectory(prefix="slurm") as folder, Cluster(Path(folder), 2) as running:
        yield running


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokens = np.cumsum(np.random.default_rng(0).integers(1, 3, size=6000)) % VOCAB
    splits = {"train": tokens[:5000], "validation": tokens[5000:]}
    return write_dataset(tmp_path_factory.mktemp("data") / "text", splits, vocab_size=VOCAB)


class Training:
    """One of several processes, as a job of so many nodes."""

    def __init__(self, folder: Path, cluster: Cluster, text: Path, world: int = 2) -> None:
        self._folder, self._cluster, self._text = folder, cluster, text
        folder.mkdir()
        slice = make_slice(
            world=world,
            steps=900,
            batch_size=6,
            checkpoint_every=50,
            log_every=100,
            warmup_steps=10,
        )
        (folder / "slice.json").write_text(slice.model_dump_json())

    def submit(self, nodes: int) -> str:
        words = f"pretrain --slice slice.json --dataset {self._text}/manifest.json"
        words += " --output out/training.json --tracking off"
        job = ("--requeue", "--open-mode=append", f"--nodes={nodes}", f"--ntasks={nodes}")
        job += ("--cpus-per-task=2", "--parsable", f"--chdir={self._folder}", "--output=said.log")
        return self._cluster.ask(
            "sbatch", *job, "--wrap", f"exec {sys.executable} -m difftransformer {words}"
        ).strip()

    def wait_for_step(self, step: int) -> None:
        wait_for(lambda: self.step() >= step or self.ended(), f"step {step}", 120)

    def step(self) -> int:
        found = self._folder.glob("results/unit/state/pretrain/*/0/*/checkpoint-*")
        return max((int(path.name[-8:]) for path in found if path.suffix == ""), default=0)

    def ended(self) -> bool:
        return (self._folder / "out" / "training.json").exists()

    def said(self) -> str:
        return (self._folder / "said.log").read_text()

    def bytes(self) -> list[bytes]:
        names = ("model.safetensors", "history.csv")
        return [(self._folder / "out" / name).read_bytes() for name in names]


def test_two_nodes_train_what_two_processes_of_one_do(
    cluster: Cluster, tmp_path: Path, text: Path
) -> None:
    alone, disturbed = (Training(tmp_path / name, cluster, text) for name in ("alone", "disturbed"))
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
    alone.submit(nodes=1)
    wait_for(alone.ended, "the undisturbed training", 200)
    said = disturbed.said()
    assert "training in 2 processes on 2 nodes" in said
    assert f"resuming from the checkpoint of step {reached}" in said
    assert "Traceback" not in said, said
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) <= 1 and all("lost the other" in line for line in errors), said
    assert disturbed.bytes() == alone.bytes()


def test_processes_that_nodes_cannot_share_are_one_line(
    cluster: Cluster, tmp_path: Path, text: Path
) -> None:
    training = Training(tmp_path / "run", cluster, text, world=3)
    training.submit(nodes=2)
    wait_for(lambda: not cluster.jobs("PENDING,RUNNING,COMPLETING"), "the job", 60)
    assert "error: training.world 3 is no multiple of the 2 nodes" in training.said()
