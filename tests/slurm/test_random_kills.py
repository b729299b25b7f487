"""Processes, nodes and heads killed at random, twenty times, under one training on two nodes.

`make test-kills` runs it, where `make test-slurm` runs.
"""

import random
import tempfile
import time
from pathlib import Path

import pytest
from attempts import assert_same
from long_workflow import Workflow, with_a_long_training
from small_cluster import Cluster, missing

pytestmark = pytest.mark.exhaustive
KILLS = 20
TRAINING = {"steps": 3500, "checkpoint_every": 40, "world_size": 2}
ON_TWO_NODES = ("nodes=2", "tasks=2", "mpi=srun", "tasks_per_gpu=0")  # as docs/cluster.md has it
WORDS = ("--set-resources", *(f"pretrain:{resource}" for resource in ON_TWO_NODES))


def test_twenty_random_kills_lose_nothing(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacking := missing():
        pytest.fail(lacking, pytrace=False)
    undisturbed, disturbed = (
        with_a_long_training(repository, tmp_path / "small" / name, ["long"], **TRAINING)
        for name in ("undisturbed", "disturbed")
    )
    undisturbed.snakemake("--cores", "2")
    with tempfile.TemporaryDirectory(prefix="slurm") as folder, Cluster(Path(folder), 2) as cluster:
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, cluster.environment[name])
        run = Workflow(disturbed, cluster)
        killed = disturb(run, cluster, random.Random(0))
    assert set(killed) == {"process", "node", "head"}
    assert_same(undisturbed.folder / "results" / "smoke", run.results)


def disturb(run: Workflow, cluster: Cluster, moment: random.Random) -> list[str]:
    """Kill one thing after another; return which, once the tables are there."""
    killed: list[str] = []
    while len(killed) < KILLS:
        with run.head(*WORDS) as head:
            while len(killed) < KILLS and head.poll() is None:
                run.wait_for_progress(head)
                assert not run.trained(), "the training ended before the kills did"
                time.sleep(moment.uniform(0, 2))
                kind = moment.choice(("process", "node", "head"))
                if kind == "process":
                    moment.choice(run.processes()).kill()
                elif kind == "node":
                    node = moment.choice(cluster.nodes)
                    cluster.lose_node(node, mark_down=True)
                    cluster.start_node(node)
                else:
                    head.kill()
                    head.wait()
                killed.append(kind)
    with run.head(*WORDS) as head:
        assert head.wait(600) == 0, run.log()
    return killed
