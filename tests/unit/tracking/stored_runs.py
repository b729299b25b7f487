"""Tracked trainings, and their runs in the store."""

from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Run, ViewType

from difftransformer.tracking.run_context import start_run
from difftransformer.tracking.tracker import Tracker


def runs(client: MlflowClient, name: str, view: int = ViewType.ACTIVE_ONLY) -> list[Run]:
    experiment = client.get_experiment_by_name("difftransformer/pretrain")
    assert experiment is not None
    same = f"tags.`difftransformer.job` = '{name}'"
    return list(client.search_runs([experiment.experiment_id], same, view))


def curve(client: MlflowClient, run: Run, key: str = "loss") -> list[tuple[int, float]]:
    history = client.get_metric_history(run.info.run_id, key)
    return sorted((point.step, point.value) for point in history)


def train(name: str, state: Path, uri: str, steps: range, *, job_id: str = "j") -> None:
    with start_run("pretrain", name, job_id, state, {"lr": 0.1}, {"scale": "tiny"}, uri) as tracker:
        log(tracker, steps)


def log(tracker: Tracker, steps: range) -> None:
    tracker.rewind(steps.start - 1)
    for step in steps:
        tracker.log_metrics({"loss": 1 / step, "lr": 0.1}, step)
    tracker.flush()
