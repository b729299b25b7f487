"""A training that is tracked, to be watched from outside, and what the store has of it."""

import json
import resource
from collections import Counter
from multiprocessing.context import ForkProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from attempts import FORK, Calls, wait_until
from mlflow import MlflowClient
from mlflow.entities import Run
from small_workflow import Checkout

from difftransformer.config.run import RunConfig
from difftransformer.tracking.history import HISTORY_FILE
from difftransformer.tracking.run_context import start_run
from difftransformer.tracking.sync import SyncConfig
from difftransformer.tracking.tracker import Tracker
from difftransformer.training.pretrain import pretrain

Point = tuple[str, int, float, int]


class Held:
    """A tracker that lets the training go on behind a step when the gate there opens."""

    def __init__(self, tracker: Tracker, gates: dict[int, Event]) -> None:
        self._tracker, self._gates = tracker, gates

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tracker, name)

    def log_metrics(self, values: dict[str, float], step: int = 0) -> None:
        for last, gate in self._gates.items():
            assert step <= last or gate.wait(120)
        self._tracker.log_metrics(values, step)


class Training:
    """The training of `diff` in a results folder of its own; it sends from its start on."""

    def __init__(self, finished: Checkout, job_calls: Calls, folder: Path, uri: str) -> None:
        words = job_calls["pretrain"]
        slice = finished.folder / words[words.index("--job-config") + 1]
        self._slice = RunConfig.model_validate_json(slice.read_bytes())
        self._data = finished.folder / "results" / "smoke" / "data" / "stdlib_text"
        self._undisturbed = finished.folder / "results" / "smoke" / "runs" / "diff" / "0"
        self.root, self.uri = folder / "results", uri
        self.state, self.output = self.root / "state", folder / "out"
        self.live_after, self.close_wait = 0.0, 1.0
        self.largest_file: int | None = None
        self.gates: dict[int, Event] = {}

    def run(self, name: str) -> None:
        """Train to the end, here."""
        if self.largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.largest_file, resource.RLIM_INFINITY))
        config = SyncConfig(self.live_after, 0.05, close_wait=self.close_wait, root=self.root)
        job = start_run("pretrain", name, "job", self.state, {"lr": 0.1}, {}, self.uri, config)
        with job as tracker:
            pretrain(
                self._slice,
                dataset=self._data,
                output=self.output,
                state=self.state,
                seed=0,
                threads=1,
                tracker=Held(tracker, self.gates) if self.gates else tracker,
                code="",
            )
            tracker.log_artifact(self.output / "history.csv")

    def start(self, name: str) -> ForkProcess:
        """Train in a process of its own."""
        process = FORK.Process(target=self.run, args=(name,))
        process.start()
        return process

    def step(self) -> int:
        checkpoints = self.state.glob("checkpoint-????????")
        return max((int(path.name[-8:]) for path in checkpoints), default=0)

    def assert_trained(self) -> None:
        """The outcome is that of a training that nobody watched."""
        for name in ("model.safetensors", "history.csv"):
            assert (self.output / name).read_bytes() == (self._undisturbed / name).read_bytes()

    def points(self) -> list[Point]:
        """What was tracked, by the history."""
        records = [json.loads(line) for line in (self.state / HISTORY_FILE).open()]
        return [
            (name, record["step"], value, record["at"])
            for record in records
            if record["kind"] == "metrics"
            for name, value in record["values"].items()
        ]

    def assert_all_arrived(self, client: MlflowClient, run: Run) -> None:
        """Each point is in the store once, and the curves are whole."""
        arrived: Counter[Point] = Counter()
        for name in {point[0] for point in self.points()}:
            history = client.get_metric_history(run.info.run_id, name)
            arrived.update((p.key, p.step, p.value, p.timestamp) for p in history)
        assert arrived == Counter(self.points())
        assert sorted(step for name, step, *_ in arrived if name == "loss") == self.steps()

    def steps(self) -> list[int]:
        """Steps of the history of the undisturbed run."""
        rows = (self._undisturbed / "history.csv").read_text().splitlines()[1:]
        return [int(row.partition(",")[0]) for row in rows]


def runs(client: MlflowClient, name: str) -> list[Run]:
    """Return the store's runs of one of our jobs."""
    experiment = client.get_experiment_by_name("difftransformer/pretrain")
    assert experiment is not None
    same = f"tags.`difftransformer.job` = '{name}'"
    return list(client.search_runs([experiment.experiment_id], same))


def only_run(client: MlflowClient, name: str) -> Run:
    (run,) = runs(client, name)
    return run


def kill_when_sent(training: Training, client: MlflowClient, name: str) -> None:
    """Train until the store knows of it and a checkpoint exists, then kill it."""
    training.gates = {100: FORK.Event()}
    process = training.start(name)
    assert wait_until(lambda: bool(runs(client, name)) and training.step() >= 20, process, 0.05)
    process.kill()
    process.join()
    training.gates = {}
