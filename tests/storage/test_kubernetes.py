"""Pods as Snakemake's own plugin asks for them, and what becomes of a workflow when they run.

A pod is a process in an empty folder here: sources, inputs, outputs and checkpoints go through a
bucket alone. That images are pulled, pods scheduled and GPUs handed out, no cluster here can show.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from attempts import assert_same
from pods import Cluster, cluster
from s3_server import Server, serving
from small_cluster import wait_for
from small_workflow import ROWS, Checkout, copy_of

from difftransformer.planning.plan import Plan

pytestmark = pytest.mark.s3

IMAGE = "registry.example/difftransformer:1"
PROFILE = "profiles/kubernetes"
TRAINED = "results/gpu/runs/diff/0/training.json"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        running.client().create_bucket(Bucket="pods")
        yield running


def sources(finished: Path, folder: Path) -> Checkout:
    """A checkout whose files git knows: these the head sends to the pods."""
    folder.mkdir()
    checkout = copy_of(finished, folder)
    (folder / ".gitignore").write_text(".snakemake/\n__pycache__/\nresults/\nhead.log\n")
    subprocess.run(["git", "init", "--quiet", "."], cwd=folder, check=True)
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)
    return checkout


def head(
    checkout: Path, pods: Cluster, server: Server, prefix: str, *words: str
) -> "subprocess.Popen[bytes]":
    """Start Snakemake by the committed profile, with what docs/cluster.md leaves to the user."""
    variables = yaml.safe_load((checkout / PROFILE / "config.yaml").read_text())["envvars"]
    environment = server.environment | {
        "KUBECONFIG": str(pods.kubeconfig),
        "DIFFTRANSFORMER_STATE": f"s3://pods/{prefix}/state",
        "PYTHONPATH": str(checkout / "src"),
        "OMP_NUM_THREADS": "1",
    }
    with (checkout / "head.log").open("wb") as log:
        return subprocess.Popen(
            [
                sys.executable, "-m", "snakemake", *words,
                "--workflow-profile", PROFILE, "--container-image", IMAGE,
                "--default-storage-prefix", f"s3://pods/{prefix}",
                "--envvars", *variables, "AWS_ENDPOINT_URL", "--seconds-between-status-checks", "1",
            ],
            cwd=checkout, env=environment, stdout=log, stderr=log,
        )  # fmt: skip


@pytest.mark.parametrize(("world_size", "manufacturer"), [(1, "nvidia"), (8, "amd")])
def test_a_training_on_gpus_requests_gpus_and_tolerations(
    world_size: int, manufacturer: str, repository: Path, server: Server, tmp_path: Path
) -> None:
    checkout, prefix = sources(repository, tmp_path / "here"), f"{manufacturer}{world_size}"
    checkout.edit(f"{PROFILE}/config.yaml", "nvidia", manufacturer)
    dataset = Plan.load(repository / "config", {"scale": "gpu"}).jobs.run("diff").dataset
    tokenized = ("manifest.json", "tokenizer.json", "tokenizer_config.json", "shards/train.bin")
    for name in tokenized:
        key = f"{prefix}/results/gpu/data/{dataset}/{name}"
        server.client().put_object(Bucket="pods", Key=key, Body=b"{}")
    with cluster(tmp_path / "cluster", runs=False) as pods:
        words = (TRAINED, "--retries", "0", "--config", "scale=gpu")
        more = f"overrides={{diff: {{training: {{world_size: {world_size}}}}}}}"
        assert head(checkout.folder, pods, server, prefix, *words, more).wait(120) != 0
        output = (checkout.folder / "head.log").read_text()
        assert len(pods.jobs) == 1, output
    (job,) = pods.jobs.values()
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == IMAGE and pod["restartPolicy"] == "Never"
    for kind in ("limits", "requests"):
        assert container["resources"][kind][f"{manufacturer}.com/gpu"] == str(world_size)
    assert container["resources"]["limits"]["memory"] == "16000M"
    (tolerated,) = pod["tolerations"]
    assert (tolerated["key"], tolerated["effect"]) == (f"{manufacturer}.com/gpu", "NoSchedule")
    named = {variable["name"] for variable in container["env"]}
    assert {"AWS_SECRET_ACCESS_KEY", "DIFFTRANSFORMER_STATE", "AWS_ENDPOINT_URL"} <= named
    assert "canary-secret" not in str(pods.jobs) + output  # but in the secret
    assert "--target-jobs 'pretrain:scale=gpu,run=diff,seed=0'" in container["args"][1]


@pytest.fixture(scope="module")
def image(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What envs/Containerfile sets, with the wheels that it puts beside."""
    wheels = tmp_path_factory.mktemp("wheels")
    text = (repository / "envs" / "Containerfile").read_text()
    (download,) = re.findall(r"^RUN python -m pip (download .*)$", text, re.MULTILINE)
    words = [str(wheels) if word == "/wheels" else word for word in download.split()]
    subprocess.run([sys.executable, "-m", "pip", *words, "-q"], cwd=repository, check=True)
    values = " ".join(re.findall(r"^ENV (.*)$", text, re.MULTILINE))
    variables = dict(assignment.split("=") for assignment in values.split())
    return variables | {"PIP_FIND_LINKS": str(wheels)}


def test_pods_give_the_table_of_one_machine_though_a_pod_is_lost(
    finished: Checkout, image: dict[str, str], server: Server, tmp_path: Path
) -> None:
    checkout = sources(finished.folder, tmp_path / "here")
    corpus = tmp_path / "hostile.jsonl"
    scale = checkout.folder / "config" / "scales" / "smoke.yaml"
    (source,) = re.findall(r"globs: \['(.*)'\]", scale.read_text())
    shutil.copy(source, corpus)
    checkout.edit("config/scales/smoke.yaml", source, str(corpus))
    log = checkout.folder / "head.log"
    with cluster(tmp_path / "cluster", runs=True) as pods:
        pods.image |= image | {"PYTHONPATH": str(checkout.folder / "src")}
        process = head(checkout.folder, pods, server, "run", "table6")
        try:
            list_checkpoints = lambda: server.copies("pods", "run/state")  # noqa: E731
            wait_for(lambda: list_checkpoints() or process.poll() is not None, "a checkpoint", 400)
            assert process.poll() is None, log.read_text() + pods.logs()
            corpus.rename(corpus.with_suffix(".away"))  # pods have no corpus: the head tokenized
            os.killpg(pods.processes[running(pods, "pretrain:scale=smoke,run=diff,")].pid, 9)
            assert process.wait(600) == 0, log.read_text() + pods.logs()
        finally:
            process.kill()
            process.wait()
        rules = Counter(re.findall(r"--target-jobs '(\w+):", str(pods.jobs)))
        rows = len(ROWS)
        assert rules == {"count_ngrams": 1, "pretrain": rows + 1, "evaluate": rows}
        assert "gpu" not in str([container["resources"] for container in pods.containers()])
        assert "resuming from the checkpoint of step" in pods.logs()

        corpus.with_suffix(".away").rename(corpus)
        assert head(checkout.folder, pods, server, "run", "table6").wait(240) == 0
        assert "Nothing to be done" in log.read_text()
        assert len(pods.jobs) == rules.total()
    built = tmp_path / "built"
    server.download("pods", "run/results/smoke", built)
    for part in ("runs/", "evaluations/", "tables/", "data/stdlib_text/shards/"):
        assert_same(finished.folder / "results" / "smoke", built, part)
    assert not server.keys("pods", "run/state")


def test_a_pod_that_fails_after_its_successor_takes_nothing_out_of_the_bucket(
    repository: Path, server: Server, tmp_path: Path
) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    waits = f"touch {begun}; while [ ! -e {go} ]; do sleep 0.1; done; exit 1"
    rule = f'rule one:\n    output: "whole"\n    shell: "{waits}"\n'
    (tmp_path / "Snakefile").write_text(rule)
    words = ["--workflow-profile", str(repository / PROFILE), "--executor", "local"]
    words += ["--default-storage-prefix", "s3://pods/late", "--retries", "0"]
    environment = server.environment | {"DIFFTRANSFORMER_STATE": "s3://pods/late/state"}
    process = subprocess.Popen(
        [sys.executable, "-m", "snakemake", *words], cwd=tmp_path, env=environment
    )
    wait_for(lambda: begun.exists() or process.poll() is not None, "the job", 60)
    assert begun.exists()
    server.client().put_object(Bucket="pods", Key="late/whole", Body=b"the successor's")
    go.touch()
    assert process.wait(60) != 0
    assert server.keys("pods", "late/whole") == ["late/whole"]


def running(pods: Cluster, job: str) -> str:
    """Name of the pod that runs a job."""
    (pod,) = [
        name
        for name, manifest in pods.jobs.items()
        if job in str(manifest) and pods.exit_code(name) is None
    ]
    return pod
