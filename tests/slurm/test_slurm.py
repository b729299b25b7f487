"""Tables built by Slurm through the committed profile, whatever a cluster does to them.

`make test-slurm` runs this; the ordinary suite leaves it out.
"""

import re
import shutil
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
from small_cluster import CPUS, QUICKLY, Cluster, missing, wait_for
from small_workflow import ROWS, Checkout, make_small

pytestmark = pytest.mark.slurm
TOKENIZER = "results/smoke/tokenizers/stdlib_text/tokenizer.json"
GROUPS = (
    "--groups", "evaluate=evaluations", "--group-components", "evaluations=50",
    "--set-resources", "evaluate:runtime=5", "evaluate:mem_mb=2000", "evaluate:cpus_per_task=1",
    "pretrain:runtime=1440", "adapt:runtime=1440",
)  # fmt: skip
WITH_A_CARD = ("--set-resources", "pretrain:gpu=1", "pretrain:runtime=1440")
SHORT = ("--set-resources", "pretrain:runtime=3")
"""Minutes: a training is told two before, so after its first."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if lacking := missing():
        pytest.fail(lacking, pytrace=False)
    with tempfile.TemporaryDirectory(prefix="slurm") as folder, Cluster(Path(folder)) as running:
        yield running


@pytest.fixture
def on_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, cluster.environment[name])
    return cluster


def test_interruptions_change_no_result_and_repeat_no_job(
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
    with run.head(*WITH_A_CARD) as head:
        training = run.training_job()
        gpus = cards(run.processes())
        assert sorted(gpus) in (["0"], ["1"], ["0", "1"])  # of this training, and the short one

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
        wait_for(run.running, "the training to begin")
        (training,) = run.running()
        run.wait_for_progress()
        with held(run.processes()):  # however fast the machine is, its time is over before its work
            wait_for(lambda: cluster.restarts(training) >= 1, "the time limit", 150)
        assert head.wait(600) == 0, run.read_log()
    assert {name: run.finished()[name] for name in before} == before
    assert "Error in rule" not in run.read_log() and "Trying to restart" not in run.read_log()


def cards(processes: list[psutil.Process]) -> list[str]:
    """The cards that Slurm gave to processes, those that have just ended left out."""
    devices = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            devices.append(process.environ()["CUDA_VISIBLE_DEVICES"])
    return devices


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


def test_small_jobs_run_as_groups(repository: Path, on_cluster: Cluster, tmp_path: Path) -> None:
    """As docs/cluster.md has it: more evaluations than cores in one job of Slurm."""
    (tmp_path / "checkout").mkdir()
    checkout = make_small(repository, tmp_path / "checkout")
    seeds = ("--config", "seeds=2")
    checkout.snakemake("--cores", "2", *seeds)
    built = checkout.folder / "results" / "smoke"
    before = tmp_path / "before"
    shutil.copytree(built, before)
    stderr = checkout.snakemake(
        *PROFILE, *QUICKLY, *GROUPS, "--forcerun", "evaluate", *seeds
    ).stderr
    (job,) = re.findall(r"has been submitted with SLURM jobid (\d+)", stderr)
    job_record = on_cluster.ask("scontrol", "show", "job", job)
    for part in ("NumCPUs=4", "mem=8000M", "TimeLimit=00:10:00"):  # four, then two
        assert part in job_record, job_record
    assert stderr.count("] evaluate smoke") == 2 * len(ROWS), stderr
    assert_same(before, built)
    assert "Nothing to be done" in checkout.snakemake(*PROFILE, *GROUPS, *seeds).stderr


@pytest.fixture(scope="module")
def checkout(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """One with a tokenizer that an edit has made old."""
    made = make_small(repository, tmp_path_factory.mktemp("checkout"))
    made.snakemake(TOKENIZER, "--cores", "1")
    made.edit(
        "src/difftransformer/data/tokenizer.py", "import hashlib", "_EDITED = 1\nimport hashlib"
    )
    return made


def test_a_missing_partition_raises_a_one_line_error(
    on_cluster: Cluster, checkout: Checkout
) -> None:
    ended = checkout.snakemake(
        *PROFILE, "--default-resources", "slurm_partition=nosuch", check=False
    )
    assert ended.returncode != 0
    output = ended.stdout + ended.stderr
    errors = [line for line in output.splitlines() if "error" in line.lower()]
    assert errors == [
        "error: slurm_partition=nosuch: Slurm has no such partition; allowed: urgent, work"
    ], output
    assert "Traceback" not in output and "SLURM jobid" not in output


def test_refused_jobs_remain_to_be_done(on_cluster: Cluster, checkout: Checkout) -> None:
    ended = checkout.snakemake(
        *PROFILE, "--default-resources", "mem_mb=99999999", "--retries", "0", check=False
    )
    assert ended.returncode != 0
    output = ended.stdout + ended.stderr
    assert "Memory specification can not be satisfied" in output, output
    # What was made before the edit does not pass for made after it.
    again = checkout.snakemake(TOKENIZER, "--cores", "1", "--dry-run")
    assert "train_tokenizer" in again.stdout + again.stderr
