"""Tables built by Slurm through the committed profile, whatever a cluster does to them.

`make test-slurm` runs this; the ordinary suite leaves it out.
"""

import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from attempts import assert_same
from long_workflow import PROFILE, Workflow, with_a_long_training
from small_cluster import CPUS, Cluster, missing, wait_for
from small_workflow import make_small

pytestmark = pytest.mark.slurm
TOKENIZER = "results/smoke/tokenizers/stdlib_text/tokenizer.json"
SHORT = ("--set-resources", "pretrain:runtime=3")
"""Minutes: a training is told two before, so after its first."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if lacking := missing():
        pytest.fail(lacking)
    with tempfile.TemporaryDirectory(prefix="slurm") as folder, Cluster(Path(folder)) as running:
        yield running


@pytest.fixture
def on_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, cluster.environment[name])
    return cluster


def test_whatever_happens_the_table_is_the_same_and_nothing_is_done_twice(
    repository: Path, on_cluster: Cluster, tmp_path: Path
) -> None:
    undisturbed = with_a_long_training(repository, tmp_path / "small" / "undisturbed")
    disturbed = Workflow(
        with_a_long_training(repository, tmp_path / "small" / "disturbed"), on_cluster
    )
    with ThreadPoolExecutor() as beside:
        built = beside.submit(undisturbed.snakemake, "--cores", "1")
        disturb(disturbed, on_cluster)
        built.result()
    assert_same(undisturbed.folder / "results" / "smoke", disturbed.results)


def disturb(run: Workflow, cluster: Cluster) -> None:
    """Build the tables on a cluster where everything happens once."""
    with run.head() as head:
        training = run.training_job()

        urgent = ("--partition", "urgent", "--cpus-per-task", str(CPUS), "--output", "/dev/null")
        cluster.ask("sbatch", "--wait", *urgent, "--wrap", "true")  # preempts what runs
        assert run.training_job() == training
        assert cluster.restarts(training) == 1

        cluster.lose_node()
        cluster.start_node()
        assert run.training_job() == training
        assert cluster.restarts(training) == 2

        head.send_signal(signal.SIGINT)
        assert head.wait(120) != 0
        wait_for(
            lambda: not cluster.jobs("PENDING,RUNNING,COMPLETING"),
            "the head to take its jobs with it",
        )
    before = run.finished()
    assert any("transformer" in name for name in before)
    with run.head(*SHORT) as head:
        training = run.training_job()
        with held(run.processes()):  # however fast the machine is, its time is over before its work
            wait_for(lambda: cluster.restarts(training) == 1, "the time limit", 150)
        assert head.wait(600) == 0, run.said()
    assert {name: run.finished()[name] for name in before} == before
    assert "Error in rule" not in run.said() and "Trying to restart" not in run.said()


@contextmanager
def held(processes: list[psutil.Process]) -> Iterator[None]:
    """Keep processes from going on, until Slurm, which wakes who it signals, has told them."""
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def test_a_partition_that_does_not_exist_is_one_line(
    repository: Path, on_cluster: Cluster, tmp_path: Path
) -> None:
    folder = tmp_path / "checkout"
    folder.mkdir()
    checkout = make_small(repository, folder)
    checkout.snakemake(TOKENIZER, "--cores", "1")
    checkout.edit(
        "src/difftransformer/data/tokenizer.py", "import hashlib", "_EDITED = 1\nimport hashlib"
    )
    ended = checkout.snakemake(
        *PROFILE, "--default-resources", "slurm_partition=nosuch", "--retries", "0", check=False
    )
    assert ended.returncode != 0
    said = ended.stdout + ended.stderr
    assert "invalid partition specified: nosuch" in said, said
    # What was made before the edit does not pass for made after it.
    again = checkout.snakemake(TOKENIZER, "--cores", "1", "--dry-run")
    assert "train_tokenizer" in again.stdout + again.stderr
