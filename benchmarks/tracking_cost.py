"""What tracking costs a training: the time inside its calls, and steps a second beside none.

Four trainings take turns inside every repeat: without tracking; with the history that every job
writes; and sending while they run to an MLflow server that answers each call after 5 s, and to one
that is down. Of each it is shown

* the direct cost: the CPU time of the training's thread inside calls of the tracker, from the start
  of the job to its end, and all CPU time of the thread that sends, as a share of what the training
  itself took; and the same calls by the wall clock, which has the waiting for the disk too;
* the ratios of speed between neighbors of one repeat, their median and its 95% interval. On a
  machine that does other work they scatter by far more than the cost.

What a job that sends to a SQLite file pays is timed by itself: once, for the import of mlflow, the
opening and the first contact, together with the longest wait at its end, as a share of the shortest
job that pays it (`SyncConfig.live_after`); and for each later contact, as a share of the time
between two (`SyncConfig.live_every`).

Usage: python benchmarks/tracking_cost.py [--steps 400] [--repeats 5] [--clock wall|cpu] [--record]
"""

import argparse
import json
import logging
import math
import multiprocessing
import os
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from scipy import stats
from werkzeug.serving import make_server

from difftransformer.config.data import DatasetConfig
from difftransformer.config.run import RunConfig
from difftransformer.data.tokenize import tokenize
from difftransformer.provenance.environment import capture
from difftransformer.tracking import run_context, sync
from difftransformer.tracking.sync import SyncConfig, send_live
from difftransformer.tracking.tracker import RunTracker
from difftransformer.training.pretrain import pretrain

KINDS = ("off", "history", "slow", "down")
DATASET = {
    "sources": {"recall": {"kind": "builtin", "name": "recall"}},
    "tokens": 400_000,
    "validation_tokens": 10_000,
    "tokenizer": {"kind": "none"},
    "recall": {"row_length": 65, "num_queries": 4},
}
CONTACTS, ROWS, METRICS = 6, 20, 8
"""What `sending` sends: contacts with the store, rows of a history in each, metrics in a row."""
SPENT: list[float] = []
"""CPU seconds of the threads that send."""


def slice_of(steps: int) -> RunConfig:
    """Make a small run of short steps: it logs five times a second, a checkpoint each second."""
    return RunConfig.model_validate(
        {
            "scale": "benchmark",
            "run": "diff",
            "dataset": "recall",
            "model": {
                "vocab_size": 128,
                "d_model": 64,
                "num_layers": 2,
                "ffn_dim": 192,
                "attention": {"variant": "diff_v1", "head_dim": 16},
                "max_positions": 128,
            },
            "training": {
                "steps": steps,
                "seq_len": 64,
                "batch_size": 16,
                "lr": 4e-3,
                "warmup_steps": 20,
                "log_every": 10,
                "checkpoint_every": 50,
                "device": "cpu",
            },
        }
    )


def serve_slowly(folder: Path, port: Connection) -> None:
    """Serve MLflow from a SQLite file, each answer 5 s late; for a process of its own."""
    os.environ["_MLFLOW_SERVER_FILE_STORE"] = f"sqlite:///{folder}/mlflow.db"
    os.environ["_MLFLOW_SERVER_ARTIFACT_ROOT"] = str(folder)
    from mlflow.server import app

    logging.getLogger("werkzeug").setLevel(logging.ERROR)

    def late(environ: Any, start: Any) -> Any:
        time.sleep(5)
        return app.wsgi_app(environ, start)

    server = make_server("127.0.0.1", 0, late, threaded=True)
    port.send(server.port)
    server.serve_forever()


@contextmanager
def slow_server(folder: Path) -> Iterator[str]:
    """Yield the address of a server that `serve_slowly`."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=serve_slowly, args=(folder, theirs), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def counted_send(*arguments: Any) -> None:
    """Send as `send_live`, and keep the CPU time of this thread."""
    try:
        send_live(*arguments)
    finally:
        SPENT.append(time.thread_time())


@dataclass
class Cost:
    """Seconds of this thread inside a block that is entered again and again."""

    cpu: float = 0.0
    wall: float = 0.0
    _since: tuple[float, float] = field(default=(0.0, 0.0))

    def __enter__(self) -> None:
        self._since = time.thread_time(), time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.cpu += time.thread_time() - self._since[0]
        self.wall += time.perf_counter() - self._since[1]


class Counted:
    """A tracker whose calls are counted."""

    def __init__(self, tracker: Any, cost: Cost) -> None:
        self._tracker, self._cost = tracker, cost

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._tracker, name)

        def counted(*values: Any, **more: Any) -> Any:
            with self._cost:
                return call(*values, **more)

        return counted


@dataclass(frozen=True)
class Timed:
    """One training: seconds by the clock that was asked for, and shares that tracking took."""

    seconds: float
    cpu_share: float
    wall_share: float


def timed(kind: str, slice: RunConfig, root: Path, slow: str, clock: Any) -> Timed:
    """Train once in ``root``."""
    uri = {"slow": slow, "down": "http://127.0.0.1:9"}.get(kind)
    live_after = 0.0 if kind in ("slow", "down") else 900.0
    config = SyncConfig(live_after=live_after, root=root, close_wait=0)
    uri = None if kind == "off" else uri or f"sqlite:///{root}/mlflow.db"
    cost, total = Cost(), Cost()
    SPENT.clear()
    with total:
        job = run_context.start_run("pretrain", kind, kind, root / "state", {}, {}, uri, config)
        with cost:
            tracker = job.__enter__()
        start = clock()
        pretrain(
            slice,
            dataset=root.parents[1] / "data",
            output=root / "out",
            state=root / "state",
            seed=0,
            threads=1,
            tracker=Counted(tracker, cost),
            code="benchmark",
        )
        seconds = float(clock() - start)
        with cost:
            job.__exit__(None, None, None)
    for thread in threading.enumerate():
        if thread.name == "tracking":
            thread.join(180)  # some twenty calls of 5 s
            assert not thread.is_alive(), "the thread that sends hangs"
    own = total.cpu - cost.cpu
    return Timed(seconds, (cost.cpu + sum(SPENT)) / own, cost.wall / total.wall)


def measure(arguments: argparse.Namespace, folder: Path, slow: str) -> dict[str, Any]:
    """Time all kinds in turn, after a warm-up that is thrown away."""
    clock = time.perf_counter if arguments.clock == "wall" else time.process_time
    slice = slice_of(arguments.steps)
    rounds: list[dict[str, Timed]] = []
    for repeat in range(arguments.repeats + 1):
        order = KINDS if repeat % 2 else KINDS[::-1]
        rounds.append({k: timed(k, slice, folder / str(repeat) / k, slow, clock) for k in order})
    del rounds[0]
    report: dict[str, Any] = {
        "seconds_off": [round(timings["off"].seconds, 3) for timings in rounds]
    }
    for kind in KINDS[1:]:
        speed = [timings["off"].seconds / timings[kind].seconds for timings in rounds]
        report[kind] = {
            "direct_cpu_share": summary([timings[kind].cpu_share for timings in rounds]),
            "wall_share_of_calls": summary([timings[kind].wall_share for timings in rounds]),
            "speed_beside_off": summary(speed),
        }
    return report


def summary(values: list[float]) -> dict[str, Any]:
    """Median, its 95% interval by the order of the values (from six of them on), and all values."""
    between = stats.quantile_test(values, p=0.5).confidence_interval(0.95)
    return {
        "median": round(statistics.median(values), 5),
        "interval": [round(float(end), 5) for end in between if math.isfinite(end)],
        "all": [round(value, 5) for value in values],
    }


def sending(root: Path) -> tuple[float, float]:
    """CPU seconds that a job spends on a SQLite store: once, and at each later contact."""
    start = time.process_time()
    from difftransformer.tracking.mlflow_runs import MlflowRuns

    runs = MlflowRuns(f"sqlite:///{root}/mlflow.db", root)
    state = root / f"state-{os.getpid()}"
    tracker = RunTracker(state, stage="pretrain", name=state.name, job_id="benchmark")
    took: list[float] = []
    for first in range(0, CONTACTS * ROWS, ROWS):
        for step in range(first, first + ROWS):
            tracker.log_metrics({f"metric_{n}": step / (n + 1) for n in range(METRICS)}, step)
        tracker.flush()
        before = time.process_time()
        runs.send(state)
        took.append(time.process_time() - before)
    return time.process_time() - start - sum(took[1:]), statistics.median(took[1:])


def healthy_store(folder: Path, repeats: int) -> dict[str, float]:
    """Seconds that a sending job pays once, as a share of the shortest that does, and later."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        samples = [pool.apply(sending, (folder,)) for _ in range(repeats + 1)]
    del samples[0]  # the first creates the file
    once, later = (statistics.median(values) for values in zip(*samples, strict=True))
    config = SyncConfig()
    spent = once + config.close_wait
    return {
        "once_cpu_seconds": round(once, 2),
        "once_share": round(spent / (config.live_after + spent), 4),
        "contact_cpu_seconds": round(later, 4),
        "contact_share": round(later / config.live_every, 5),
    }


def points(database: Path) -> int:
    """Count the points of metrics that arrived in a SQLite file."""
    with closing(sqlite3.connect(database)) as connection:
        (count,) = connection.execute("select count(*) from metrics").fetchone()
    return int(count)


def main() -> int:
    """Measure, print and, if asked, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--record", action="store_true", help="write benchmarks/records")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        healthy = healthy_store(Path(temporary), repeats=3)
    import difftransformer.tracking.mlflow_runs  # noqa: F401 - what `sending` counts

    sync.send_live = counted_send

    with tempfile.TemporaryDirectory() as temporary, slow_server(Path(temporary)) as slow:
        folder = Path(temporary)
        tokenize(DatasetConfig.model_validate(DATASET), None, folder / "data", folder / "s", 1)
        report = measure(arguments, folder, slow) | {"clock": arguments.clock}
        report["sqlite"] = healthy
        report["points_on_slow_server"] = points(folder / "mlflow.db")
    report |= {"steps": arguments.steps, "environment": capture(1).model_dump()}
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.record:
        day = datetime.now(UTC).date().isoformat()
        path = Path(__file__).parent / "records" / f"tracking_cost-{day}.json"
        path.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
